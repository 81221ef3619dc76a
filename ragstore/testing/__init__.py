"""Conformance suites for connectors: subclass the one of your kind, give its fixtures, and run pytest."""
