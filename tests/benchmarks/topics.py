"""A number of documents in; clustered vectors, a store and a ledger that hold them, and a policy of role assignments over them out.

Ten chunks to a document, each near the middle of its document's topic: vectors of 384 dimensions out of a space of 64, 500 topics of
unequal size, as a store has them that holds what many teams write. Everything is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ragstore.access.azure.policy import AzurePolicy
from ragstore.access.conditions.tree import READ_ACTION, TAGS
from ragstore.contracts import Embedder, PutRows, Store
from ragstore.ledger import ChunkRecord, Commit, Ledger
from ragstore.models import AccessAttributes, BlobId, BlobState, Principal, Row, chunk_id, text_hash
from tests.support.azure_files import assigned, policy_of

DIMENSIONS = 384
CHUNKS = 10
"""Of a document."""
_TOPICS = 500
_DEPARTMENTS = 12
_LATENT = 64
_WORDS, _VOCABULARY = 45, 5_000
_AT_ONCE = 1_000
"""Documents of a commit."""
_MEDIA_TYPE = "text/markdown"
_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_GUARD = f"(!(ActionMatches{{'{READ_ACTION}'}} AND NOT SubOperationMatches{{'Blob.List'}}))"

Vectors = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Documents that one principal may read, and no others, by a condition over a tag that every document has."""

    name: str
    documents: Mask
    """Shape (documents,)."""
    operator: str = "StringEquals"
    pattern: str = "in"

    @property
    def key(self) -> str:
        """Of the tag."""
        return self.name.replace(" ", "-").replace("%", "")

    @property
    def principal(self) -> Principal:
        """Who may read them."""
        return Principal(id=f"reader-{self.key}", name=self.name)

    @property
    def assignment(self) -> dict[str, object]:
        """As the Azure CLI writes it."""
        tag = f"@Resource[{TAGS}:{self.key}<$key_case_sensitive$>]"
        return assigned(self.principal.id, condition=f"({_GUARD} OR ({tag} {self.operator} '{self.pattern}'))")


class Topics:
    """The vectors of all chunks, shape (documents * 10, 384), in the order of their documents."""

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self._draw = draw = np.random.default_rng(4)
        departments = draw.normal(size=(_DEPARTMENTS, _LATENT))
        middles = departments[draw.integers(_DEPARTMENTS, size=_TOPICS)] + 0.8 * draw.normal(size=(_TOPICS, _LATENT))
        weights = 1 / np.arange(1, _TOPICS + 1) ** 0.7
        self.topic = draw.choice(_TOPICS, size=documents, p=weights / weights.sum())
        about = middles[self.topic] + 0.4 * draw.normal(size=(documents, _LATENT))
        chunks = np.repeat(about, CHUNKS, axis=0) + 0.4 * draw.normal(size=(documents * CHUNKS, _LATENT))
        lift = draw.normal(size=(_LATENT, DIMENSIONS))
        self.vectors = _unit(chunks @ lift + 0.6 * draw.normal(size=(documents * CHUNKS, DIMENSIONS)))
        nearness = _unit(middles @ lift) @ _unit(middles[:1] @ lift)[0]
        self._nearest_first = np.argsort(-nearness)

    def queries(self, number: int) -> Vectors:
        """Chunks of the topics around one of them, each a little changed; shape (number, 384)."""
        asked = np.flatnonzero(np.isin(np.repeat(self.topic, CHUNKS), self._nearest_first[: _TOPICS // 10]))
        chosen = self.vectors[self._draw.choice(asked, size=number)]
        return _unit(chosen + 0.03 * self._draw.normal(size=chosen.shape))

    def at_random(self, share: float) -> Mask:
        """This share of the documents."""
        chosen = np.zeros(self.documents, np.bool_)
        chosen[self._draw.permutation(self.documents)[: round(share * self.documents)]] = True
        return chosen

    def far_away(self, share: float) -> Mask:
        """Whole topics, those farthest from what is asked for, of about this share of the documents."""
        sizes = np.bincount(self.topic, minlength=_TOPICS)
        wanted, found, topics = share * self.documents, 0, []
        for topic in self._nearest_first[::-1]:
            if found < wanted and found + sizes[topic] <= 1.1 * wanted:
                topics.append(topic)
                found += int(sizes[topic])
        return np.isin(self.topic, topics)

    def best(self, query: Vectors, documents: Mask, limit: int) -> list[int]:
        """The exact answer: numbers of the nearest chunks of these documents, best first."""
        admitted = np.flatnonzero(np.repeat(documents, CHUNKS))
        return [int(number) for number in admitted[np.argsort(-(self.vectors[admitted] @ query))[:limit]]]


class Library:
    """The chunks of `topics` in a store and a ledger, and the policy that gives each share to its principal."""

    def __init__(self, topics: Topics, shares: Sequence[Share], folder: Path) -> None:
        self.topics = topics
        self.policy: AzurePolicy = policy_of(folder, [share.assignment for share in shares])
        self.ledger = Ledger("sqlite:///ledger.db", base=folder)
        self.shares = shares
        self._words = _words(topics)
        self.numbers: dict[str, int] = {}
        """Of every chunk, by its id."""

    async def fill(self, store: Store) -> None:
        """Write everything, and have the store keep its house."""
        for start in range(0, self.topics.documents, _AT_ONCE):
            documents = range(start, min(start + _AT_ONCE, self.topics.documents))
            rows = [row for document in documents for row in self.rows(document)]
            self._commit(documents, rows)
            await store.apply([PutRows(rows=rows)])
        await store.maintain(force=True)

    def rows(self, document: int) -> Iterator[Row]:
        """The chunks of a document."""
        state = self._state(document)
        columns = self.policy.columns(state.access, media_type=_MEDIA_TYPE)
        for number in range(document * CHUNKS, (document + 1) * CHUNKS):
            text = self._words[number]
            key = chunk_id(state.id.document_id, text_hash(text), 0)
            self.numbers[key] = number
            yield Row(
                chunk_id=key, document_id=state.id.document_id, generation=1, text=text, vector=self.topics.vectors[number], access=columns
            )

    def _state(self, document: int) -> BlobState:
        tags = {share.key: _value(share, document) for share in self.shares}
        blob = BlobId(account="local", container="docs", path=f"topic-{self.topics.topic[document]}/{document}.md")
        access = AccessAttributes(account=blob.account, container=blob.container, path=blob.path, tags=tags)
        return BlobState(id=blob, etag="e", size=1, modified=_MOMENT, access=access)

    def _commit(self, documents: Sequence[int], rows: Sequence[Row]) -> None:
        states = [self._state(document) for document in documents]
        self.ledger.documents.mark_pending(states)
        self.ledger.documents.commit(
            [
                Commit(
                    state=state,
                    sha256=None,
                    media_type=_MEDIA_TYPE,
                    title=None,
                    pipeline="p",
                    columns_hash="",
                    expected_generation=0,
                    chunks=[_record(row) for row in rows[at * CHUNKS : (at + 1) * CHUNKS]],
                    pending=False,
                )
                for at, state in enumerate(states)
            ]
        )


class Chosen(Embedder):
    """Gives the vectors that it was told, at once: what is measured is the search."""

    fingerprint = "chosen"
    dimensions = DIMENSIONS
    max_tokens = 1_000
    price_per_million_tokens = None
    scripts = None
    unrelated_cosine = None

    def __init__(self) -> None:
        self.vectors: dict[str, Vectors] = {}

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> Vectors:
        return np.stack([self.vectors[text] for text in texts])

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    @override
    async def close(self) -> None:
        """Nothing is open."""


def _unit(vectors: NDArray[np.floating]) -> Vectors:
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return unit


def _words(topics: Topics) -> list[str]:
    """A text for each chunk: its number, and words of which each topic has its own."""
    draw = np.random.default_rng(5)
    common = draw.zipf(1.3, size=(topics.documents * CHUNKS, _WORDS - 10)) % _VOCABULARY
    own = _VOCABULARY + 40 * np.repeat(topics.topic, CHUNKS)[:, None] + draw.integers(40, size=(len(common), 10))
    return [f"n{number} " + " ".join(f"w{word}" for word in words) for number, words in enumerate(np.hstack([common, own]).tolist())]


def _value(share: Share, document: int) -> str:
    """Of the share's tag, in or out; where a pattern is asked for it is one that no filter can say."""
    side = "in" if share.documents[document] else "out"
    return side if share.operator == "StringEquals" else f"{side} {document}"


def _record(row: Row) -> ChunkRecord:
    return ChunkRecord(chunk_id=row.chunk_id, start=0, end=len(row.text), page=None, heading=None, text_hash=text_hash(row.text))
