"""The parts that an index is made of, built by the facade and handed to each step."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access import Policy
from ragstore.chunking import Chunker
from ragstore.config import Settings
from ragstore.contracts import Embedder, Source, Store
from ragstore.ledger import KnownBlob, Ledger
from ragstore.models import AccessAttributes, AccessColumns, BlobId
from ragstore.parsing import PARSER_VERSION, ParserPool
from ragstore.terms import TERMS_VERSION

_TERMS: Final = f"|terms={TERMS_VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that writing needs."""

    settings: Settings
    sources: Sequence[Source]
    ledger: Ledger
    store: Store
    embedder: Embedder
    policy: Policy
    chunker: Chunker
    parsers: ParserPool
    spool: Path

    @property
    def pipeline(self) -> str:
        """Fingerprint of all that turns content into chunks, vectors and terms."""
        return f"{PARSER_VERSION}|{self.chunker.fingerprint}|{self.embedder.fingerprint}{_TERMS}"

    def has_terms_of_now(self, known: KnownBlob) -> bool:
        """Whether the rows of this blob were written with the terms by which queries look for them."""
        return known.pipeline.endswith(_TERMS)

    def source_of(self, blob: BlobId) -> Source | None:
        """The source whose container this blob is in; None where it is configured no more."""
        for source in self.sources:
            if (source.account, source.container) == (blob.account, blob.container):
                return source
        return None

    def columns(self, access: AccessAttributes, media_type: str) -> AccessColumns:
        """The access columns that rows of a blob with these attributes carry."""
        return self.policy.columns(access, media_type=media_type)

    def retags(self, known: KnownBlob, access: AccessAttributes) -> bool:
        """Whether these attributes (or another policy over the same ones) change who finds a blob whose content stays as it is."""
        same = {known.access, known.current_access} == {access.to_json()}
        return not same or columns_hash(self.columns(access, known.media_type)) != known.columns_hash


def columns_hash(columns: AccessColumns) -> str:
    """Tells whether the rows of a document carry these columns already."""
    return hashlib.blake2b(repr(columns).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
