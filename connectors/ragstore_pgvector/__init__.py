"""A store in PostgreSQL with pgvector: exact filters, whole replacements in one transaction, any number of readers and writers."""

from __future__ import annotations

from ragstore_pgvector.store import PgvectorStore

__all__ = ["PgvectorStore"]
