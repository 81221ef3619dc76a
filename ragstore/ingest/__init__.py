"""Compose the steps of the write side: a plan, its application, and the checks around both."""
