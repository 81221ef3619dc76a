"""Hits in, messages for a chat model with numbered sources out."""

from __future__ import annotations

from ragstore.prompting.prompt import PromptBuilder
from ragstore.prompting.template import SHIPPED
from ragstore.prompting.tokens import count_by

__all__ = ["SHIPPED", "PromptBuilder", "count_by"]
