"""The tables of the ledger, and the migrations that bring an older file up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from ragstore.errors import ConfigError
from ragstore.ledger.texts import FreeText

metadata = MetaData()

_Bytes = Integer().with_variant(BigInteger(), "postgresql")  # SQLite's integers have 64 bits anyway

settings = Table("settings", metadata, Column("key", String, primary_key=True), Column("value", FreeText(), nullable=False))
"""What holds for the whole index: schema version, embedder, collection."""

PATH_START: Final = 300
"""So many characters of a path are in PostgreSQL's index."""

blobs = Table(
    "blobs",
    metadata,
    Column("document_id", String, primary_key=True),
    Column("account", FreeText(), nullable=False),
    Column("container", FreeText(), nullable=False),
    Column("path", FreeText(), nullable=False),
    Column("state", String, nullable=False),  # live | stale | quarantined | deferred | deleted | new
    Column("generation", Integer, nullable=False),
    Column("pending", Integer, nullable=False),  # 1: the store may hold rows or columns that are not the committed ones
    Column("etag", FreeText(), nullable=False),
    Column("version", FreeText()),
    Column("size", _Bytes, nullable=False),
    Column("modified", String, nullable=False),
    Column("content_type", FreeText()),
    Column("sha256", String),
    Column("media_type", FreeText(), nullable=False),
    Column("title", FreeText()),
    Column("pipeline", String, nullable=False),  # fingerprint of parser, chunker and embedder that made the chunks
    Column("access", Text, nullable=False),  # attributes of the committed generation
    Column("current_access", Text, nullable=False),  # attributes as last seen
    Column("seen_at", Float, nullable=False, server_default="0"),  # when one began to look at those, in seconds since the epoch
    Column("columns_hash", String, nullable=False),  # of the access columns that the store's rows should carry
    Column("chunks", Integer, nullable=False),
    Column("indexed_at", Float, nullable=False),  # seconds since the epoch
    Column("sequencer", String),  # of the last event that was applied
    Index("blobs_by_pending", "pending"),
    Index("blobs_by_sha256", "sha256"),
    Index("blobs_by_path", "account", "container", "path").ddl_if(dialect="sqlite"),
    # PostgreSQL takes no index entry over 2,704 bytes, and a path may have more.
    Index("blobs_by_path_start", "account", "container", text(f"left(path, {PATH_START})")).ddl_if(dialect="postgresql"),
)
"""One row per blob ever seen; a deleted one stays as a tombstone."""

chunks = Table(
    "chunks",
    metadata,
    Column("chunk_id", String, primary_key=True),
    Column("document_id", String, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("page", Integer),
    Column("heading", FreeText()),
    Column("text_hash", String, nullable=False),
    Index("chunks_by_document", "document_id"),
    sqlite_with_rowid=False,
)
"""The chunks of every committed generation, with their spans. A row of the store whose id is not here is never shown."""

vectors = Table(
    "vectors",
    metadata,
    Column("fingerprint", String, nullable=False),
    Column("text_hash", String, nullable=False),
    Column("vector", LargeBinary, nullable=False),  # little-endian float32
    Column("used_at", Float, nullable=False),  # when it was made
    Index("vectors_by_text", "text_hash", "fingerprint", unique=True),  # the hash first: it is asked for alone as well
)
"""The vector cache: nothing is embedded twice."""

unused = Table(
    "unused",
    metadata,
    Column("text_hash", String, primary_key=True),
    Column("since", Float, nullable=False),
    sqlite_with_rowid=False,
)
"""Texts that a chunk had, and when it lost them; a few bytes each, where a note beside the vector would write all of it again."""

failures = Table(
    "failures",
    metadata,
    Column("document_id", String, primary_key=True),
    Column("blob", FreeText(), nullable=False),
    Column("kind", String, nullable=False),  # a quarantine kind, or "transient"
    Column("reason", FreeText(), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("since", Float, nullable=False),
    Column("etag", FreeText(), nullable=False),
    Column("sha256", String),
    Column("pipeline", String, nullable=False),
    Column("dismissed", Integer, nullable=False),
)
"""The quarantine, and the transient failures that the next run mends."""

cursors = Table(
    "cursors",
    metadata,
    Column("feed", FreeText(), primary_key=True),
    Column("cursor", FreeText(), nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("last_event", Float),  # the moment of the newest event that was applied
    Column("lag", Float),  # seconds, as last measured
)
"""Where to go on in each feed; saved only when all before it is applied."""

leases = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("owner", String, nullable=False),  # empty: nobody's
    Column("expires_at", Float, nullable=False),  # by the database's clock
    Column("token", Integer, nullable=False),
)
"""Who may do what only one may do at a time. Rows stay, so that tokens grow."""

work = Table(
    "work",
    metadata,
    Column("document_id", String, primary_key=True),
    Column("account", FreeText(escaped=True), nullable=False),
    Column("container", FreeText(escaped=True), nullable=False),
    Column("path", FreeText(escaped=True), nullable=False),
    Column("hint", String, nullable=False),
    Column("lane", Integer, nullable=False),  # 1: what has to be fetched; 0: all else, which goes first
    Column("sequencer", FreeText(escaped=True)),
    Column("etag", FreeText(escaped=True)),
    Column("came_from", FreeText(escaped=True)),
    Column("kind", FreeText(escaped=True), nullable=False),
    Column("moment", Float, nullable=False),  # of the event, in seconds since the epoch
    Column("stamp", String, nullable=False),  # another one with every event that says something new
    Column("queued_at", Float, nullable=False),  # this and what follows by the database's clock
    Column("attempts", Integer, nullable=False),
    Column("not_before", Float, nullable=False),
    Column("owner", String, nullable=False),  # empty: nobody's
    Column("ticket", String, nullable=False),  # another one with every taking
    Column("lease_until", Float, nullable=False),
    Index("work_by_turn", "lane", "queued_at"),
)
"""Blobs of which a feed has said something that is not applied yet: one row each, however often it was said."""

directories = Table(
    "directories",
    metadata,
    Column("folder_id", String, primary_key=True),  # 32 hex digits of what follows
    Column("account", FreeText(), nullable=False),
    Column("container", FreeText(), nullable=False),
    Column("path", FreeText(), nullable=False),  # empty for the root
    Column("acl", FreeText(), nullable=False),  # empty: never read, or gone; nobody gets through
    Column("seen_at", Float, nullable=False),  # when one began to read it last, in seconds since the epoch; 0 for never
)
"""Every folder above a blob that has an ACL, and the folder's own: its change is one row here, whatever is below it."""

acls = Table(
    "acls",
    metadata,
    Column("digest", String, primary_key=True),  # 16 hex digits of the text
    Column("acl", FreeText(), nullable=False),
)
"""What the ACLs of blobs say, each text once. Rows stay: they are few."""

SCHEMA_VERSION: Final = 3


_NEW_INDEXES: Final = frozenset({"blobs_by_sha256", "blobs_by_path"})
"""PostgreSQL never had a ledger without them."""


def _new_tables(connection: Connection) -> None:
    """`create_all` has made the new tables already, but gives old ones neither new columns nor new indexes."""
    there = {column["name"] for column in inspect(connection).get_columns(cursors.name)}
    for column in (cursors.c.last_event, cursors.c.lag):
        if column.name not in there:
            connection.execute(text(f"ALTER TABLE {cursors.name} ADD COLUMN {column.name} FLOAT"))
    if "seen_at" not in {column["name"] for column in inspect(connection).get_columns(blobs.name)}:
        connection.execute(text(f"ALTER TABLE {blobs.name} ADD COLUMN seen_at FLOAT DEFAULT 0 NOT NULL"))
    for index in blobs.indexes:
        if index.name in _NEW_INDEXES:
            index.create(connection, checkfirst=True)


def _acl_tables(connection: Connection) -> None:
    """`create_all` has made the tables. ACLs that the ledger holds had no owner then, which grants nothing: the next listing mends them."""


MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {1: _new_tables, 2: _acl_tables}
"""From version n to n + 1. Each runs in the transaction that also writes the new version."""


def prepare(connection: Connection) -> None:
    """Create the tables, or migrate them to `SCHEMA_VERSION`. Raises `ConfigError` for a ledger of a newer ragstore."""
    metadata.create_all(connection)
    found = connection.execute(select(settings.c.value).where(settings.c.key == "schema_version")).scalar_one_or_none()
    if found is None:
        connection.execute(insert(settings).values(key="schema_version", value=str(SCHEMA_VERSION)))
        return
    version = int(found)
    _refuse_newer(version)
    while version < SCHEMA_VERSION:
        MIGRATIONS[version](connection)
        version += 1
        connection.execute(update(settings).where(settings.c.key == "schema_version").values(value=str(version)))


def is_current(connection: Connection) -> bool:
    """Whether nothing is left to do for `prepare`. Raises `ConfigError` for a ledger of a newer ragstore."""
    if not connection.dialect.has_table(connection, settings.name):
        return False
    found = connection.execute(select(settings.c.value).where(settings.c.key == "schema_version")).scalar_one_or_none()
    version = int(found or 0)
    _refuse_newer(version)
    return version == SCHEMA_VERSION


def check(connection: Connection) -> None:
    """Raises `ConfigError` where the ledger, which may not be changed, is of another version."""
    prepared = connection.dialect.has_table(connection, settings.name)
    found = connection.execute(select(settings.c.value).where(settings.c.key == "schema_version")).scalar_one_or_none() if prepared else 0
    version = int(found or 0)
    _refuse_newer(version)
    if version < SCHEMA_VERSION:
        raise ConfigError(
            "this ledger was written by an older ragstore: make it and its folder writable, so that it can be brought up to date"
        )


def _refuse_newer(version: int) -> None:
    if version > SCHEMA_VERSION:
        raise ConfigError(f"this ledger was written by a newer ragstore (schema {version}, known here: {SCHEMA_VERSION}); upgrade ragstore")
