"""The values of ragstore in the order in which they flow: blob, change, document, chunk, row, match, hit, prompt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from ragstore.spool import Content

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

AttributeScalar = str | int | bool
"""One value of a custom security attribute, in the type that the directory gives it."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BlobId:
    """Where a blob is. A local folder is an account `local` with one container. `path` is verbatim: `a//b` is not `a/b`."""

    account: str
    container: str
    path: str

    @property
    def name(self) -> str:
        """What people see: `container/path`."""
        return f"{self.container}/{self.path}"

    @property
    def document_id(self) -> str:
        """32 hex digits derived from account, container and path; the same on every machine and in every run."""
        text = f"{self.account}\0{self.container}\0{self.path}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAttributes:
    """All that a decision over access may look at, as it stood at one moment."""

    account: str
    container: str
    path: str
    tags: Mapping[str, str] = field(default_factory=dict)
    """Blob index tags; keys are case-sensitive."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Blob metadata; keys are lower-cased, because HTTP headers have no case."""
    is_current_version: bool = True
    encryption_scope: str | None = None
    acl: str | None = None
    """The file's own ACL in the words of `ragstore.access.acl`, empty where it cannot be read; None without a hierarchical namespace."""

    def to_json(self) -> str:
        """Canonical: two equal sets of attributes have equal JSON."""
        return _CANONICAL.encode(
            {
                "account": self.account,
                "container": self.container,
                "path": self.path,
                "tags": dict(self.tags),
                "metadata": dict(self.metadata),
                "is_current_version": self.is_current_version,
                "encryption_scope": self.encryption_scope,
                "acl": self.acl,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> AccessAttributes:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobState:
    """A blob as its source describes it at one moment, without its content."""

    id: BlobId
    etag: str
    """Changes with every write to content or metadata (not always to tags); compared for equality only."""
    size: int
    """Bytes."""
    modified: datetime
    """Aware, UTC. For people; never used to decide whether something changed."""
    content_type: str | None = None
    content_md5: str | None = None
    """Hex, as the client declared it: a hint, which can be forged."""
    version: str | None = None
    access: AccessAttributes
    archived: bool = False
    """In a tier whose content cannot be read without rehydration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBlob:
    """Content, with the state read *after* it; the ETag of both is the same (design: access is paired with content)."""

    state: BlobState
    content: Content
    sha256: str
    """Hex digest of the content."""


Hint = Literal["content", "attributes", "gone", "folder"]
"""What an event says of a blob. `content`: written, or perhaps written. `attributes`: index tags, metadata, ACL or tier only. `gone`:
deleted. `folder`: everything below the path (which ends with `/`, or is empty for the container) came, went or moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a feed says happened. It is a hint to look at the blob, whose present state is what is applied (design: state is truth)."""

    blob: BlobId
    hint: Hint
    moment: datetime
    """When it happened, aware, UTC."""
    sequencer: str | None = None
    """Orders the events of one blob, where the feed gives one; see `is_after`."""
    etag: str | None = None
    """Of the blob after the event, where the feed tells."""
    came_from: str | None = None
    """The path before a rename of a hierarchical namespace, in the same container; of a folder, with `/` at the end."""
    kind: str = ""
    """As the feed calls it, for logs: `BlobCreated/PutBlob`."""


def is_after(sequencer: str | None, stored: str | None) -> bool:
    """Whether an event is to be looked at: only one that is surely not newer than what is stored is not.

    Sequencers are compared ordinally in lower case, and only where they are of one length: samples of Event Grid's documentation have 32
    digits and others 48 (https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage).
    """
    if sequencer is None or stored is None or len(sequencer) != len(stored):
        return True
    return sequencer.lower() > stored.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Some events of a feed in their order, and where to go on after them."""

    events: Sequence[Event]
    cursor: str | None
    """To be saved once all these events, and all batches before, are applied; None for a feed that remembers by itself."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many records said nothing of a blob of this source, by what they are; unknown types are among them by name."""
    receipt: object = None
    """The feed's own, for `Feed.settle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMark:
    """A page (or slide, or sheet) begins at this character offset of the document's text."""

    start: int
    number: int
    """Counts from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadingMark:
    """A heading begins at this character offset of the document's text."""

    start: int
    level: int
    """1 to 6."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A run of a document's normalised text; blocks tile the text in order. Small documents have one."""

    text: str
    start: int
    """Offset of the first character in the document's text; all marks are in these global offsets as well."""
    pages: tuple[PageMark, ...] = ()
    headings: tuple[HeadingMark, ...] = ()
    warnings: tuple[str, ...] = ()
    """What the reader should know: a page that could not be read, bytes that were replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed blob."""

    media_type: str
    """What the content was found to be, e.g. `text/markdown`."""
    title: str | None = None
    encoding: str | None = None
    """The codec that decoded it, where text was decoded."""
    blocks: Iterable[Block]
    """Iterated once; a tuple where the document is small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A span of a document: `document.text[start:end] == text`, exactly."""

    text: str
    start: int
    end: int
    page: int | None = None
    heading: str | None = None
    """The path of headings over the chunk's first character, joined by ` > `. Not part of the embedded text."""
    text_hash: str
    """32 hex digits of the embedded text: the key of the vector cache."""


def text_hash(text: str) -> str:
    """The key under which a text's vector is cached: 32 hex digits (BLAKE2b-128) of its UTF-8 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def chunk_id(document_id: str, text_hash: str, occurrence: int) -> str:
    """32 hex digits derived from what the chunk is, never from where it stands, so that an insertion above it changes nothing.

    The first 8 are those of the document: what is sorted by id keeps the chunks of one document together, and a change touches few pages.
    """
    return document_id[:8] + hashlib.blake2b(f"{document_id}:{text_hash}:{occurrence}".encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessColumns:
    """What a store can filter on, equal in every row of one document. Lists are never null; empty means none.

    `allowed` holds ids (mode `groups`). `labels` holds `t\\x1fKEY\\x1fVALUE` for tags and `m\\x1fkey\\x1fvalue` for metadata,
    `label_keys` holds `t\\x1fKEY` and `m\\x1fkey`, so that presence can be asked without a column per key.
    Mode `azure` adds labels of its own to both (`access.labels.azure_columns`).
    """

    account: str
    container: str
    path: str
    media_type: str = ""
    allowed: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """A chunk with its vector and its access columns, as a store keeps it."""

    chunk_id: str
    document_id: str
    generation: int
    """The generation of the document that wrote this row last; an older one never overwrites or deletes it."""
    text: str
    vector: NDArray[np.float32]
    """Shape (dimensions,)."""
    access: AccessColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKey:
    """What `verify` needs to know of a stored row."""

    chunk_id: str
    document_id: str
    generation: int
    access: AccessColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A row that a store found. Not yet permitted: only retrieval turns a match into a hit."""

    chunk_id: str
    document_id: str
    text: str
    score: float
    """Higher is better; cosine for vectors, BM25 for text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChunk:
    """What the ledger knows of a chunk of a document's committed generation: where it stands, and who may be shown it."""

    chunk_id: str
    document_id: str
    blob: BlobId
    start: int
    end: int
    page: int | None
    heading: str | None
    title: str | None
    media_type: str
    version: str | None
    etag: str
    stale: bool
    generation_access: AccessAttributes
    """As they stood when this generation's content was read."""
    current_access: AccessAttributes
    """As last seen; a hit is readable only if both grant."""
    seen_at: float = 0.0
    """When one began to look at those, in seconds since the epoch."""
    pending: bool = False
    """The store may not have been told of the current attributes yet."""
    modified: datetime | None = None
    """When the blob was modified last, as its source says, aware; None where nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks."""

    id: str
    """Object id; a GUID is lower-cased."""
    name: str
    groups: frozenset[str] = frozenset()
    """Ids of all groups, transitive."""
    attributes: Mapping[str, tuple[AttributeScalar, ...]] = field(default_factory=dict)
    """Custom security attributes under `SET_NAME` (`access.condition_attributes`): always lists; an empty one counts as not assigned."""
    environment: Mapping[str, str | bool] = field(default_factory=dict)
    """What the host vouches for of this one request, by the names of Azure's conditions: `isPrivateLink`,
    `Microsoft.Network/privateEndpoints`, `Microsoft.Network/virtualNetworks/subnets`. What is not here is missing. Never inferred from
    headers, never read from a file of principals."""

    def __post_init__(self) -> None:
        """Raises `TypeError` for groups, or values of an attribute, in one text, each letter of which would count as one."""
        if isinstance(cast("object", self.groups), str):
            raise TypeError("the groups of a principal are a set of ids, not one text")
        for name, values in self.attributes.items():
            if not isinstance(cast("object", values), tuple):
                raise TypeError(f"the values of the attribute {name!r} of a principal are a tuple, even where there is one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk that this principal may read, at the span where it stands in the blob's committed version."""

    blob: str
    """`container/path`."""
    chunk: str
    score: float
    text: str
    start: int
    end: int
    page: int | None
    heading: str | None
    title: str | None
    version: str | None
    etag: str
    stale: bool = False
    """The blob is known to have changed, and the change could not be indexed yet."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, in the order of the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A pointer from `[number]` in an answer to the blob version and span that it rests on."""

    number: int
    blob: str
    chunk: str
    start: int
    end: int
    page: int | None
    heading: str | None
    title: str | None
    version: str | None
    etag: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, in the order of the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Messages for a chat model, and what its `[n]` marks point to."""

    messages: tuple[Mapping[str, str], ...]
    """Each with `role` and `content`."""
    citations: tuple[Citation, ...]
    tokens: int
    """Counted with the tokenizer that kept the budget."""
    texts: tuple[str, ...] = ()
    """What stands under each number, as the model sees it, in the order of the citations."""
    chunks: tuple[str, ...] = ()
    """The ids of all chunks that the sources are made of; a citation names the most relevant one of its source."""
