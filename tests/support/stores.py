"""The name of a store in; the section of a configuration that names it, over a service that runs for as long as a block, out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from ragstore.contracts import Store
from ragstore.plugins import build
from tests.fakes.azure_search import AzureSearch
from tests.fakes.pinecone import PineconeServer
from tests.support import pgvector, postgres
from tests.support.azure_search import KEY_VARIABLE
from tests.support.certificates import without_authorities

KINDS: Final = ("memory", "lancedb", "pgvector", "azure-search", "pinecone")
HTTP: Final = ("azure-search", "pinecone")
REAL: Final = tuple(kind for kind in KINDS if kind != "memory")


@contextmanager
def section(kind: str, *, folder: Path, server: Callable[[], str], dimensions: int = 64) -> Iterator[dict[str, Any]]:
    """What stands under `[store]`; `server` gives the URL of a PostgreSQL, and is asked only where one is wanted.

    Those that may lag are waited for a second: what tests take away behind their back does not come by itself.
    """
    with pytest.MonkeyPatch.context() as patch:
        match kind:
            case "memory":
                yield {"type": kind, "namespace": uuid.uuid4().hex}
            case "lancedb":
                yield {"type": kind, "path": str(folder / f"index-{uuid.uuid4().hex}")}
            case "pgvector":
                with postgres.schema(server()) as url:
                    yield {"type": kind, "url": pgvector.plain(url), "schema": pgvector.schema_of(url)}
            case "azure-search":
                with AzureSearch() as service:
                    patch.setenv(KEY_VARIABLE, service.key)
                    yield {"type": kind, "endpoint": service.url, "key_env": KEY_VARIABLE, "settle": 1}
                assert service.broken == []
            case "pinecone":
                patch.setenv("PINECONE_API_KEY", "secret")
                without_authorities(patch, folder)
                with PineconeServer(dimension=dimensions) as pinecone:
                    yield {"type": kind, "index": "ragstore", "endpoint": pinecone.host, "wait_seconds": 1}
            case _:
                pytest.fail(f"tests/support/stores.py does not know how to run a store of type {kind!r}")


def opened(options: Mapping[str, Any], *, dimensions: int, collection: str = "chunks", **more: Any) -> Any:
    """The store of such a section, by the registry."""
    given = {**options, **more}
    return build("stores", given.pop("type"), given, base=Path(), collection=collection, dimensions=dimensions)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A store, and the loop that it lives in: for tests that are no coroutines."""

    store: Store
    run: Callable[..., Any]

    @classmethod
    @contextmanager
    def of(cls, options: Mapping[str, Any], *, dimensions: int, **more: Any) -> Iterator[Running]:
        """Opened, and closed in the end."""
        with asyncio.Runner() as runner:
            store: Store = opened(options, dimensions=dimensions, **more)
            yield cls(store=store, run=runner.run)
            runner.run(store.close())
