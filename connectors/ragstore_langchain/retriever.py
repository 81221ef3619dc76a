"""A question that LangChain asks in, `Document`s that one principal may read out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, InstanceOf
from typing_extensions import override

from ragstore import AsyncIndex, Index
from ragstore.models import Hit, Principal


class RagstoreRetriever(BaseRetriever):
    """Searches one index as one principal; make one for each who asks, it costs nothing.

    - `index`: of `ragstore.open` (for `invoke` and `ainvoke`) or of `ragstore.open_async` (for `ainvoke` on the loop that it lives on). It
      stays the caller's, who closes it.
    - `principal`: of `index.principal(name)` or `index.principal_of_claims(claims)`. There is no default.
    - `limit` and `filter` as in `AsyncIndex.search`; a call may say others: `retriever.invoke(question, limit=3)`.
    - `options`: more arguments of `search`, such as `{"fusion": "rrf"}`.

    A document's id is that of its chunk; its metadata are the hit's fields but for the text, and `source`, which is the blob's name. Raises
    what `search` raises.
    """

    index: InstanceOf[Index] | InstanceOf[AsyncIndex] = Field(exclude=True, repr=False)
    principal: InstanceOf[Principal] = Field(exclude=True, repr=False)
    limit: int = 8
    filter: str | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, **changed: Any
    ) -> list[Document]:
        if isinstance(self.index, AsyncIndex):
            raise TypeError("an index of ragstore.open_async is asked with ainvoke; for invoke, give one of ragstore.open")
        return _documents(self.index.search(query, principal=self.principal, **self._arguments(changed)))

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun | None = None, **changed: Any
    ) -> list[Document]:
        arguments = self._arguments(changed)
        if isinstance(self.index, AsyncIndex):
            return _documents(await self.index.search(query, principal=self.principal, **arguments))
        return _documents(await asyncio.to_thread(self.index.search, query, principal=self.principal, **arguments))

    def _arguments(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """An unknown one, and a second principal, are a `TypeError` of `search`: what is left out silently would be taken for heard."""
        return {"limit": self.limit, "filter": self.filter, **self.options, **changed}


def _documents(hits: list[Hit]) -> list[Document]:
    return [Document(id=hit.chunk, page_content=hit.text, metadata=_metadata(hit)) for hit in hits]


def _metadata(hit: Hit) -> dict[str, Any]:
    fields = hit.as_dict()
    del fields["text"]
    return {"source": hit.blob, **fields}
