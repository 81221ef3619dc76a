"""Hits in, messages for a chat model with numbered sources out."""

from __future__ import annotations

from ragstore.prompting.prompt import PromptBuilder

__all__ = ["PromptBuilder"]
