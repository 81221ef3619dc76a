"""An empty folder in; a small company's files, indexed, changed and searched by two people, with every claim checked, out."""

from ragstore.demo.story import Check, Step, tell

__all__ = ["Check", "Step", "tell"]
