"""A kind and a name in, the connector class out: entry points, loaded on first use, the same door for first and third parties."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Final, Literal, get_type_hints

from ragstore.errors import ConfigError

Kind = Literal["sources", "feeds", "embedders", "rerankers", "stores", "directories"]

_ONE: Final[Mapping[Kind, str]] = {
    "sources": "source",
    "feeds": "feed",
    "embedders": "embedder",
    "rerankers": "reranker",
    "stores": "store",
    "directories": "directory",
}

_EXTRAS = {
    "azure": "azure",
    "aiohttp": "azure",
    "httpx": "rerank",
    "openai": "openai",
    "openvino": "openvino",
    "pinecone": "pinecone",
    "psycopg": "pgvector",
    "sentence_transformers": "sentence-transformers",
    "torch": "sentence-transformers",
    "watchfiles": "watch",
}


def names(kind: Kind) -> list[str]:
    """The names that `load` accepts for this kind, sorted."""
    return sorted({entry.name for entry in _entries(kind, tuple(sys.path))})


@cache
def _entries(kind: Kind, path: tuple[str, ...]) -> EntryPoints:  # noqa: ARG001 - where packages are looked for
    """The connectors of all installed packages. To read what each of some hundred packages says takes 10 ms, for every part of an index."""
    return entry_points(group=f"ragstore.{kind}")


def load(kind: Kind, name: str) -> Any:  # noqa: ANN401 - the caller knows which contract it asked for
    """The connector class registered under this name.

    Raises `ConfigError`, naming the nearest known name or the extra to install.
    """
    found = list(_entries(kind, tuple(sys.path)).select(name=name))
    if not found:
        _entries.cache_clear()  # it may have been installed meanwhile, as in a notebook
        found = list(_entries(kind, tuple(sys.path)).select(name=name))
    if not found:
        near = difflib.get_close_matches(name, names(kind), n=1)
        hint = f"did you mean {near[0]!r}? Known" if near else "known"
        raise ConfigError(f"no {_ONE[kind]} of type {name!r}; {hint}: {', '.join(names(kind))}")
    try:
        return found[0].load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(missing)
        remedy = f"pip install 'ragstore[{extra}]'" if extra else f"the module {missing!r}, see {_origin(found[0])}"
        raise ConfigError(f"the {_ONE[kind]} {name!r} needs a package that is not installed: {remedy}") from error


def _section(kind: Kind) -> str:
    """Where the options of this kind of connector stand in the configuration."""
    return "access.graph" if kind == "directories" else _ONE[kind]


def _origin(entry: EntryPoint) -> str:
    """Who brought this connector, for somebody who must mend its installation."""
    return f"the requirements of {entry.dist.name!r}" if entry.dist else entry.value


def build(kind: Kind, name: str, options: Mapping[str, object], **context: object) -> Any:  # noqa: ANN401 - as `load`
    """An instance of the connector: `options` from the configuration, checked and converted by the types of its constructor, and `context`.

    A constructor takes keyword arguments only. Of the context it is given what it asks for by name (`base`: the folder that relative
    paths start from; for stores `collection` and `dimensions`). Raises `ConfigError` for an unknown, missing or ill-typed option.
    """
    from pydantic import ConfigDict, Field, ValidationError, create_model

    cls = load(kind, name)
    try:
        hints = get_type_hints(cls.__init__)
    except NameError as error:
        raise ConfigError(
            f"the {_ONE[kind]} {name!r} cannot be built: {error.name!r} in the types of its constructor must be imported at run time, "
            "not under TYPE_CHECKING, because options are checked by these types"
        ) from error
    parameters = [p for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_KEYWORD]
    wanted = {p.name: value for p in parameters for key, value in context.items() if key == p.name}
    fields = {p.name: (hints.get(p.name, object), ... if p.default is p.empty else p.default) for p in parameters if p.name not in wanted}
    for option in options:
        if option not in fields:
            near = difflib.get_close_matches(option, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(fields))}" if fields else "it has none: take it out"
            raise ConfigError(f"[{_section(kind)}] type = {name!r} has no option {option!r}; {hint}")
    # Under names of its own, because options may be called as what every model has (`schema`, `copy`).
    known = {f"option_{field}": (kind, Field(default, alias=field)) for field, (kind, default) in fields.items()}
    model = create_model(name, __config__=ConfigDict(arbitrary_types_allowed=True), **known)  # type: ignore[call-overload]
    try:
        checked = model(**options)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise ConfigError(f"[{_section(kind)}] type = {name!r}: {problems}") from error
    return cls(**{field: getattr(checked, f"option_{field}") for field in fields}, **wanted)
