"""A query and a principal in, hits that this principal may read out."""

from __future__ import annotations

from ragstore.retrieval.expression import Expression, evaluate, to_filter
from ragstore.retrieval.search import Committed, Retriever
from ragstore.retrieval.syntax import parse

__all__ = ["Committed", "Expression", "Retriever", "evaluate", "parse", "to_filter"]
