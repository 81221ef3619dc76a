"""A question that LlamaIndex asks in, scored nodes that one principal may read out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from typing_extensions import override

from ragstore import AsyncIndex, Index
from ragstore.models import Hit, Principal

_FOR_THE_MODEL: Final = frozenset({"blob", "title", "heading", "page"})
"""Fields that LlamaIndex writes above the text in a prompt; scores and hashes would only cost tokens."""


class RagstoreRetriever(BaseRetriever):
    """Searches one index as one principal; make one for each who asks, it costs nothing.

    - `index`: of `ragstore.open` (for `retrieve` and `aretrieve`) or of `ragstore.open_async` (for `aretrieve` on the loop that it lives
      on). It stays the caller's, who closes it.
    - `principal`: of `index.principal(name)` or `index.principal_of_claims(claims)`. There is no default.
    - `limit` and `filter` as in `AsyncIndex.search`.
    - `options`: more arguments of `search`, such as `{"fusion": "rrf"}`.

    A node's id is that of its chunk, its source is the blob, its metadata are the hit's fields but for text and score. Raises `TypeError`
    for what is no index or no principal, and what `search` raises.
    """

    def __init__(
        self,
        index: Index | AsyncIndex,
        *,
        principal: Principal,
        limit: int = 8,
        filter: str | None = None,
        options: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if not isinstance(index, (Index, AsyncIndex)):
            raise TypeError(f"a {type(index).__name__} is no index: give one of ragstore.open or ragstore.open_async")
        if not isinstance(principal, Principal):
            raise TypeError(f"a {type(principal).__name__} is no principal: give index.principal(name)")
        super().__init__(callback_manager=callback_manager)
        self._index = index
        self._principal = principal
        self._arguments: dict[str, Any] = {"limit": limit, "filter": filter, **(options or {})}

    @override
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._index, AsyncIndex):
            raise TypeError("an index of ragstore.open_async is asked with aretrieve; for retrieve, give one of ragstore.open")
        return _nodes(self._index.search(query_bundle.query_str, principal=self._principal, **self._arguments))

    @override
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if isinstance(self._index, AsyncIndex):
            return _nodes(await self._index.search(query_bundle.query_str, principal=self._principal, **self._arguments))
        return _nodes(await asyncio.to_thread(self._index.search, query_bundle.query_str, principal=self._principal, **self._arguments))


def _nodes(hits: list[Hit]) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(hit), score=hit.score) for hit in hits]


def _node(hit: Hit) -> TextNode:
    metadata = {name: value for name, value in hit.as_dict().items() if name not in {"text", "score", "chunk"}}
    hidden = [name for name in metadata if name not in _FOR_THE_MODEL or metadata[name] is None]
    return TextNode(
        id_=hit.chunk,
        text=hit.text,
        metadata=metadata,
        start_char_idx=hit.start,
        end_char_idx=hit.end,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=list(metadata),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.blob)},
    )
