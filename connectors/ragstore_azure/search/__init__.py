"""A store in an index of Azure AI Search: our terms as full text, exact and approximate vector search, filters before the limit."""

from __future__ import annotations

from ragstore_azure.search.store import AzureSearchStore

__all__ = ["AzureSearchStore"]
