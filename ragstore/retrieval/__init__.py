"""A query and a principal in, hits that this principal may read out."""

from __future__ import annotations

from ragstore.retrieval.door import Committed, Freshness
from ragstore.retrieval.expression import Expression, evaluate, to_filter
from ragstore.retrieval.quality import Quality, Switches
from ragstore.retrieval.record import AuditLog, Observer, Retrieval, measured
from ragstore.retrieval.search import Retriever
from ragstore.retrieval.syntax import parse

__all__ = [
    "AuditLog",
    "Committed",
    "Expression",
    "Freshness",
    "Observer",
    "Quality",
    "Retrieval",
    "Retriever",
    "Switches",
    "evaluate",
    "measured",
    "parse",
    "to_filter",
]
