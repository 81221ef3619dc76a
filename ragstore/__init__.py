"""ragstore keeps a RAG index in step with a blob store and serves permission-trimmed, augmented prompts from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragstore.blocking import Index, open  # noqa: A004 - ragstore.open() reads like gzip.open()
    from ragstore.index import AsyncIndex, open_async

__version__ = "0.1.0"
__all__ = ["AsyncIndex", "Index", "__version__", "open", "open_async"]

_HOMES = {"Index": "ragstore.blocking", "open": "ragstore.blocking", "AsyncIndex": "ragstore.index", "open_async": "ragstore.index"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import the facade on first use, so that `import ragstore` loads no SDK, numpy or pydantic."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ragstore' has no attribute {name!r}")
