"""What a connector must do: Protocols of a few methods. A connector subclasses its own and passes that suite of `ragstore.testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore.filters import Filter
    from ragstore.models import AccessColumns, AttributeScalar, BlobState, EventBatch, FetchedBlob, Match, Row, RowKey


class Source(Protocol):
    """One container (or folder) of blobs.

    - Errors are translated at this edge: throttling and outages raise `TransientError`, missing rights raise `ConfigError` that
      names the missing role, a blob that cannot be read for a reason of its own raises `PoisonError`.
    """

    account: str
    container: str
    location: str
    """Where it is, for people: a folder or a URL, without any secret. Another location under the same names is another source."""
    max_bytes: int
    """A larger blob is quarantined unread."""

    def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        """Every current base blob under the prefix that the globs admit and whose path starts with `below`, each once.

        - Ends early only by raising: whoever gets to the end has seen everything.
        - Snapshots, old versions and deleted blobs are left out.
        - A blob over the size limit is listed too; the caller decides.
        """
        ...

    async def state(self, path: str) -> BlobState | None:
        """The blob as it is now, tags and metadata included; None where it does not exist or the globs leave it out."""
        ...

    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        """Download into a new file in the folder `spool`, or None where the blob does not exist.

        - Content is pinned by ETag; a blob that changes meanwhile is read again from the start, never mixed.
        - Tags, metadata and ACL are read after the content, then the ETag is compared: all three belong together.
        - The file's name is derived by hashing, never from the path.
        - A blob larger than the size limit raises `PoisonError("too_large", ...)` without being downloaded.
        """
        ...

    async def close(self) -> None:
        """Give back connections. Nothing else may be called afterwards."""
        ...


@runtime_checkable
class AclSource(Protocol):
    """What a `Source` can do besides whose account may have a hierarchical namespace, in which folders have ACLs of their own.

    There the access attributes of every blob have an ACL, in the words of `ragstore.access.acl`: one that cannot be read is `UNREADABLE`,
    never None. Errors are translated as of `Source`.
    """

    @property
    def acl_reads(self) -> int:
        """How many ACLs were asked for one by one so far, of blobs and of folders."""
        ...

    async def hierarchical(self) -> bool:
        """Whether the account has a hierarchical namespace."""
        ...

    async def folder_acls(self, folders: Collection[str]) -> Mapping[str, str]:
        """The ACL of each of these folders, by path; the root's is empty. One that is not there, or cannot be read, is `UNREADABLE`."""
        ...


class Feed(Protocol):
    """Says what happened to the blobs of one source, sooner than a listing would.

    Built with `base`, the `source` that it is a feed of, that source's own options as `source_options`, and the feed's options.
    Errors are translated as of `Source`; besides, `read` raises `FeedGapError` where events were lost, and `ConfigError` with a message of
    its own for each of: there is no such feed, it is not there yet, it may not be read.
    """

    name: str
    """Tells it apart from every other feed in the ledger, for people too: `change-feed account/container`."""
    poll_seconds: float
    """How long to wait before the next `read` when the last one gave nothing. 0 where `read` itself waits for events."""

    async def head(self) -> str | None:
        """Where to begin so that nothing is missed which happens after this call; None for a feed that remembers by itself.

        Whoever takes this first, and then lists the source, has everything.
        """
        ...

    def read(self, cursor: str | None) -> AsyncIterator[EventBatch]:
        """What is there behind the cursor now, in an order that keeps each blob's events in theirs; ends when there is no more for now.

        - Each batch's cursor stands behind that batch: reading from it gives what comes later, and nothing twice where that is possible.
        - Every event is of a blob that the source admits; for the others nothing is said.
        - A batch is bounded (some thousand events), and no more than a few are fetched ahead.
        """
        ...

    async def settle(self, batch: EventBatch) -> None:
        """All events of this batch are applied, durably. A feed with a cursor does nothing: the caller saves the cursor."""
        ...

    async def close(self) -> None:
        """Give back connections. Events that were not settled come again, to whoever reads next."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors."""

    fingerprint: str
    """Covers all that changes a vector: model, revision, pooling, prefixes, dimensions, precision."""
    dimensions: int
    max_tokens: int
    """Longest input, special tokens and prefix included; what is longer is an error in whoever cut the chunk. An embedder that names its
    `scripts` gets longer texts of other alphabets, and embeds the beginning."""
    price_per_million_tokens: float | None
    """In US dollars; None where it costs nothing but time."""
    scripts: frozenset[str] | None
    """Scripts that the model knows, as Unicode names them (`LATIN`, `CJK` ...); None where it knows all or nobody can tell."""
    unrelated_cosine: float | None
    """About the cosine, below 1, of a question and a text that have nothing to do with each other: 0 for many models, .7 for some. None
    where nobody can tell: then nobody knows what is near either, and vectors and words count alike by default."""

    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        """Vectors of shape (len(texts), dimensions), L2-normalised, in the order of the texts.

        - Any number of texts, none included; the embedder does its own batching.
        - Never sees an empty or blank text.
        - Throttling and outages are retried here with a budget, then raise `TransientError`.
        - A text that is refused for good raises `PoisonError("embedding_refused", ...)`.
        """
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as `max_tokens` counts them, special tokens and prefix left out."""
        ...

    async def close(self) -> None:
        """Give back threads and connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRows:
    """Insert rows, or overwrite those of the same chunk id whose generation is not newer."""

    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRows:
    """Delete these chunks of one document where their generation is at most the given one."""

    document_id: str
    generation: int
    chunk_ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDocument:
    """Delete every row of one document whose generation is at most the given one."""

    document_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retag:
    """Set the access columns of every row of one document; text and vector stay, and so does the generation."""

    document_id: str
    access: AccessColumns


Write = PutRows | DropRows | DropDocument | Retag


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a store can do; each flag is tested both ways by the conformance suite."""

    full_text: bool
    """`search` takes a text query; without it a text query raises `ConfigError`."""
    exact_filters: bool
    """Every filter of the algebra is applied exactly; without it the store returns a superset and retrieval re-checks.

    A store that has no patterns (or no prefixes, or no negation) is still sound: it pushes `Not` down to the leaves and lets a leaf that it
    cannot say, negated or not, be true of every row. `filters.simplify` first: it leaves no `Like` that equality or a prefix can say.
    """
    our_terms: bool = True
    """A text query finds what shares one of `terms.query_terms` with a row, as the reference store does; without it the store analyses text
    itself, and other rows may be found."""
    immediate: bool = True
    """A write that returns is visible to the next search of every process. Without it `keys` and `search` lag behind for seconds: `verify`
    waits for a while, and retrieval, which asks the ledger of every hit, shows less than there is but never what was taken away."""
    lag_seconds: float = 20.0
    """So long `verify` waits at most, where writes are not immediate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorQuery:
    """Nearest rows by cosine."""

    vector: NDArray[np.float32]
    """Shape (dimensions,), L2-normalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """Best rows by BM25 over their words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Sizes, for `status` and `verify`."""

    rows: int
    detail: Mapping[str, int | str]
    """What this kind of store has to tell: versions, fragments, unindexed rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expunged:
    """How a collection is after `Store.expunge`, for whoever has to prove it."""

    files: tuple[Path, ...] = ()
    """All that it consists of on this machine, so that they may be searched; none where it lies elsewhere."""
    older: tuple[str, ...] = ()
    """Files or versions from before that are still there; empty where all went well."""


class Store(Protocol):
    """Where rows live. One store object is one collection, whose vectors all have the same dimensions.

    - A write that returns is durable and visible to the next `search` of every process.
    - Writes of one call are applied in their order; each is idempotent, and the call as a whole may be repeated after a crash.
    - What a filter means is `filters.matches`. Strings are data: quotes, control characters and lone surrogates come back as they were put.
    - A vector of another shape raises `ConfigError` that says "shape"; one that is not finite raises `ValueError` that says "finite",
      before anything of the call is written. A collection whose rows have other dimensions raises `ConfigError` that says "dimensions"
      at its first use.
    """

    capabilities: StoreCapabilities

    async def apply(self, writes: Sequence[Write]) -> None:
        """Apply the writes in order, in as few commits as the store can do it."""
        ...

    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        """The best rows that satisfy the filter, best first.

        - Filters before it limits: returns `min(limit, matching rows)` matches for a vector query, however few match.
        - A text query returns only rows that share a word with it.
        - `NEVER` returns nothing without asking the store.
        """
        ...

    def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        """All stored rows of these documents, vectors included, in any order."""
        ...

    def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        """The key of every stored row (of these documents, or of all), for comparing store and ledger."""
        ...

    async def maintain(self, *, force: bool = False) -> None:
        """Compact, index and clean up where it is due; cheap when it is not. One process at a time."""
        ...

    async def expunge(self) -> Expunged:
        """Have nothing of rows that were deleted or overwritten stay behind: not in files, old versions, indexes or deletion marks.

        Every row that is stored stays, and is found as before. Costs as much as writing the collection anew. May be repeated after a crash.
        The caller sees to it that nobody else writes; readers of an older version have to open it again.
        """
        ...

    async def stats(self) -> StoreStats:
        """Sizes of the collection."""
        ...

    async def drop(self) -> None:
        """Delete the whole collection."""
        ...

    async def close(self) -> None:
        """Give back handles."""
        ...


class Reranker(Protocol):
    """Reorders permitted texts by how well they answer; it never sees one that is not permitted.

    Somebody waits for the answer, and a search whose reranker fails is answered in the order that it had before: patience is short here.
    """

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each text, higher is better, finite, in the order of the texts. Between 0 and 1 it also serves variety and recency.

        - Any number of texts, none included; the reranker does its own batching, and cuts what is too long for it.
        - Never sees a blank query or text. Several calls may be under way at once.
        - An answer that lacks a score, has one twice or one that is no number raises.
        - Raises `ConfigError` where a person has to change something: the key, the model, the address. Whatever else it raises is logged by
          its type alone.
        """
        ...

    async def close(self) -> None:
        """Give back threads and connections. One that has none need not say so."""
        return None  # noqa: RET501 - a body that is empty would have to be overridden


class GroupResolver(Protocol):
    """A directory that knows what a token leaves out of a principal: its groups and its custom security attributes.

    - Asked by object id only, never by a name: people choose their names.
    - Whatever keeps the answer from being whole raises, an unreadable page as well: less than all is never returned. `AccessError` where
      the principal is unknown or the answer makes no sense, `ConfigError` that names the missing permission, `TransientError` for
      throttling and outages.
    """

    async def groups(self, object_id: str) -> frozenset[str]:
        """The object ids of all groups that the principal is in, through other groups too."""
        ...

    async def attributes(self, object_id: str) -> Mapping[str, tuple[AttributeScalar, ...]]:
        """The custom security attributes that are assigned to the principal, under `SET_NAME`, in the types of the directory."""
        ...

    async def close(self) -> None:
        """Give back connections. Nothing else may be called afterwards."""
        ...
