"""Exports of Azure's role assignments in, the policy of mode `azure` out."""
