"""Stores in a schema of a PostgreSQL that runs for tests, closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sqlalchemy import make_url

from ragstore.testing.rows import DIMENSIONS
from ragstore_pgvector import PgvectorStore
from tests.support import postgres

Open = Callable[..., PgvectorStore]
"""Options in, a store out; by default the collection `chunks`."""


@asynccontextmanager
async def stores(url: str) -> AsyncIterator[Open]:
    """Opens any number of stores in the schema that the URL of a ledger names."""
    opened: list[PgvectorStore] = []

    def open_(collection: str = "chunks", dimensions: int = DIMENSIONS, **options: Any) -> PgvectorStore:
        given = {"url": plain(url), "schema": schema_of(url), **options}
        opened.append(PgvectorStore(collection=collection, dimensions=dimensions, **given))
        return opened[-1]

    yield open_
    for store in opened:
        await store.close()


def plain(url: str) -> str:
    """The URL without the schema."""
    return make_url(url).difference_update_query(["schema"]).render_as_string(hide_password=False)


def schema_of(url: str) -> str:
    """The schema that the URL names."""
    return str(make_url(url).query["schema"])


def server_of(url: str) -> Any:
    """The server behind the URL, which can be stopped and started."""
    return postgres.installed().get_server(Path(unquote(str(make_url(url).query["host"]))))
