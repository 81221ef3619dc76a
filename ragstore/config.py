"""`ragstore.toml` and `RAGSTORE_SECTION__KEY` variables in, checked `Settings` out; a wrong key gets the nearest right one named."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ragstore.errors import ConfigError

_PREFIX = "RAGSTORE_"
_NOT_SECTIONS = {"SHARED"}
_DEFAULT_TYPES = {"embedder": "minilm", "store": "lancedb"}
_EXAMPLE_TYPES = {**_DEFAULT_TYPES, "reranker": "rerank-api"}
_NO_TABLE = frozenset({"dict_type", "model_type", "model_attributes_type", "tuple_type"})
"""What pydantic calls it where a section is a plain value."""

SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Of tokens. Each has a public key: with a shared secret whoever checks a token could issue one."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConnectorSettings(BaseModel):
    """A section whose `type` names a connector; the other keys are that connector's options, checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True)
    type: str

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside `type`."""
        return dict(self.model_extra or {})


class ChunkingSettings(_Section):
    """`[chunking]`."""

    size: int = Field(default=254, ge=16, description="tokens of content in a chunk")
    min_ratio: float = Field(default=0.3, gt=0, le=0.5)


class LedgerSettings(_Section):
    """`[ledger]`."""

    url: str = "sqlite:///.ragstore/ledger.db"


class AccessSettings(_Section):
    """`[access]`: who may read what. The mode must be said in words."""

    mode: Literal["open", "groups", "azure"]
    principals: str | None = None
    metadata_key: str | None = None
    tag_key: str | None = None
    rules: str | None = None
    assignments: str | None = None
    role_definitions: str | None = None
    deny_assignments: str | None = None
    graph: ConnectorSettings | None = None
    """The directory that is asked for groups and custom security attributes, where a token does not hold them."""
    accounts: tuple[str, ...] = ()
    max_age_hours: float | None = Field(default=None, gt=0, le=24 * 366, description="since a blob's attributes were looked at")
    audit: str | None = Field(default=None, description="file that every answer is recorded in")


class CacheSettings(_Section):
    """`[cache]`: vectors of texts that no chunk has any more."""

    keep: int = Field(default=30, ge=0, description="days")


class GuardSettings(_Section):
    """`[guard]`: a listing that would delete more than this share and more than this number of blobs stops and asks."""

    delete_share: float = Field(default=0.3, ge=0, le=1)
    delete_count: int = Field(default=20, ge=0)
    other_containers: Literal["delete", "keep"] = "delete"
    """What becomes of indexed blobs whose container no [source] names any more."""


class ParsingSettings(_Section):
    """`[parsing]`: limits of the parser processes."""

    workers: int = Field(default=2, ge=1)
    seconds: float = Field(default=60, gt=0)
    memory: int = Field(default=2 * 2**30, ge=256 * 2**20, description="bytes")
    text: int = Field(default=64 * 2**20, ge=2**20, description="bytes of text from a format that is not plain text")


class WorkerSettings(_Section):
    """`[worker]`: how `ragstore worker` follows feeds."""

    reconcile_hours: float = Field(default=24, gt=0, le=24 * 366, description="between two listings that find what no feed told")
    batch: int = Field(default=256, ge=1, le=100_000, description="blobs that are applied together")
    backlog: int = Field(default=50_000, ge=1, le=10**9, description="changes that may wait before feeds are read no further")


class RetrievalSettings(_Section):
    """`[retrieval]`: what a query that says nothing else is answered with. Every default leaves out what it stands for."""

    fusion: Literal["max-norm", "rrf"] = "max-norm"
    vector_weight: float | None = Field(default=None, ge=0, le=1, description="share of the vectors in a score; None: see README")
    near_duplicates: float = Field(default=1.0, gt=0, le=1, description="likeness from which on a text counts as one shown before")
    mmr: float = Field(default=1.0, ge=0, le=1, description="how much relevance counts against being unlike the hits before")
    half_life_days: float = Field(default=0.0, ge=0, le=36_600, description="in which half of the boost of a new blob is gone; 0: none")
    neighbours: int = Field(default=0, ge=0, le=10, description="chunks before and behind each hit that come with it")
    rerank: bool | None = Field(default=None, description="whether the model of [reranker] orders the hits; None: where there is one")


class PromptSettings(_Section):
    """`[prompt]`."""

    template: str | None = None
    tokenizer: str | None = Field(default=None, description="tokenizer.json of the model that is asked; default: the embedder's")
    max_tokens: int = Field(default=3000, ge=256)


class KeySettings(_Section):
    """`[[service.keys]]`: an API key, of which only the digest is kept, and whose it is."""

    hash: str = Field(pattern="^sha256:[0-9a-f]{64}$", description="as `ragstore serve --new-key` prints it")
    principal: str | None = Field(default=None, min_length=1, description="id or name; None for a key that reads metrics only")


class TokenSettings(_Section):
    """`[service.tokens]`: whose bearer tokens (JWT of an OpenID Connect issuer) are taken, and what they must say."""

    issuer: str = Field(min_length=1, description="as it stands in the claim `iss`, to the letter")
    audience: str | tuple[str, ...] = Field(min_length=1, description="one of these must be in the claim `aud`")
    jwks_url: str | None = Field(default=None, description="where the issuer's keys are; default: as its discovery document says")
    algorithms: tuple[SigningAlgorithm, ...] = Field(default=("RS256", "ES256"), min_length=1)
    leeway: float = Field(default=60, ge=0, le=300, description="seconds by which clocks may differ")
    groups_claim: Literal["sometimes", "always", "ignored"] = "sometimes"
    ids: Literal["guid", "any"] = "guid"


class ServiceSettings(_Section):
    """`[service]`: `ragstore serve`."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    keys: tuple[KeySettings, ...] = ()
    tokens: TokenSettings | None = None
    rate: float = Field(default=600, ge=0, description="requests per minute and principal; 0 for no limit")
    burst: int = Field(default=60, ge=1, description="of them at once")
    max_body: int = Field(default=65_536, ge=1024, le=16 * 2**20, description="bytes of a request")
    timeout: float = Field(default=30, gt=0, le=3600, description="seconds for a request")
    concurrency: int = Field(default=256, ge=1, le=100_000, description="requests at a time, answers that still stream included")


class ChatSettings(_Section):
    """`[chat]`: `/v1/chat/completions` of `ragstore serve`, which asks the model in `[ask]`, and the conversations that it keeps."""

    timeout: float = Field(default=300, gt=0, le=3600, description="seconds for a whole answer")
    max_body: int = Field(default=2**20, ge=1024, le=16 * 2**20, description="bytes of a request, earlier messages included")
    conversations: str | None = Field(default=None, description="file of them; default: conversations.db beside the ledger")
    keep_days: float = Field(default=30, ge=0, le=36_600, description="since a conversation was last used; 0: none is kept")
    rewrite: bool = Field(
        default=True, description="whether the model first puts a question behind earlier messages so that it stands alone"
    )
    rewrite_timeout: float = Field(default=5, gt=0, le=60, description="seconds for that; then the question is looked up as it stands")


class AskSettings(_Section):
    """`[ask]`: the model that `ragstore ask` and `/v1/chat/completions` send prompts to, documents and all."""

    base_url: str | None = Field(default=None, description="of an OpenAI-compatible API")
    model: str | None = None
    api_key_env: str | None = Field(default=None, description="environment variable that holds the key")
    timeout: float = Field(default=120, gt=0, le=3600, description="seconds between two pieces of an answer")


class Settings(_Section):
    """All of `ragstore.toml`. `base` is the folder that relative paths start from: where the file lies."""

    base: Path
    source: tuple[ConnectorSettings, ...] = ()
    embedder: ConnectorSettings = ConnectorSettings(type=_DEFAULT_TYPES["embedder"])
    reranker: ConnectorSettings | None = None
    chunking: ChunkingSettings = ChunkingSettings()
    store: ConnectorSettings = ConnectorSettings(type=_DEFAULT_TYPES["store"])
    ledger: LedgerSettings = LedgerSettings()
    access: AccessSettings
    cache: CacheSettings = CacheSettings()
    guard: GuardSettings = GuardSettings()
    parsing: ParsingSettings = ParsingSettings()
    worker: WorkerSettings = WorkerSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    prompt: PromptSettings = PromptSettings()
    ask: AskSettings = AskSettings()
    service: ServiceSettings = ServiceSettings()
    chat: ChatSettings = ChatSettings()

    @field_validator("source", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return [value] if isinstance(value, Mapping) else value


def load(file: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in this file, with the environment's overrides.

    Raises `ConfigError` where the file is missing or unreadable, and for each unknown or ill-typed key.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {str(file)!r}; write one with: ragstore init") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{str(file)!r} cannot be read: {error}") from error
    if "access" not in data:
        data["access"] = {}
    return from_mapping(data, base=file.resolve().parent, environ=environ)


def from_mapping(data: Mapping[str, Any], *, base: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in this mapping (as TOML would give it), with the environment's overrides."""
    merged = _override(data, os.environ if environ is None else environ)
    for section, default in _DEFAULT_TYPES.items():
        if isinstance(merged.get(section), dict):
            merged[section] = {"type": default, **merged[section]}
    access = merged.get("access")
    if isinstance(access, dict) and isinstance(access.get("graph"), Mapping):
        merged["access"] = {**access, "graph": {"type": "graph", **access["graph"]}}
    try:
        settings = Settings.model_validate({**merged, "base": base})
    except ValidationError as error:
        raise ConfigError("; ".join(_problem(item) for item in error.errors(include_url=False))) from error
    if settings.retrieval.rerank and settings.reranker is None:
        raise ConfigError("[retrieval] rerank = true, and there is no [reranker] to do it; write one, or take that line out")
    return settings


def _override(data: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """`RAGSTORE_STORE__TYPE=memory` sets `[store] type`; a source is overridden only if it is the only one."""
    merged: dict[str, Any] = {key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    for name, value in environ.items():
        section, separator, key = name.removeprefix(_PREFIX).lower().partition("__")
        if not name.startswith(_PREFIX) or not separator or section.upper() in _NOT_SECTIONS:
            continue
        target = merged.setdefault(section, {})
        if isinstance(target, list | tuple):
            if len(target) != 1:
                raise ConfigError(f"{name} is set, but there are {len(target)} sources; change the file instead")
            merged[section] = [{**target[0], key: value}]
        elif isinstance(target, dict):
            target[key] = value
        else:
            raise ConfigError(f"{name} is set, but {section!r} is no section")
    return merged


def _problem(item: Mapping[str, Any]) -> str:
    """One pydantic error as a sentence that says what to do."""
    where = [str(part) for part in item["loc"]]
    if item["type"] == "extra_forbidden":
        section = type(Settings.model_fields[where[0]].default) if len(where) > 1 else Settings
        known = [name for name in getattr(section, "model_fields", AccessSettings.model_fields) if name != "base"]
        if where[0] == "access" and len(where) > 1:
            known = list(AccessSettings.model_fields)
        if where[0] == "service" and len(where) > 2:  # noqa: PLR2004 - section, table, key
            known = list((KeySettings if where[1] == "keys" else TokenSettings).model_fields)
        near = difflib.get_close_matches(where[-1], known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        return f"unknown key {'.'.join(where)!r}; {hint}"
    if where == ["access", "mode"] and item["type"] == "missing":
        return '[access] mode must be said: "groups", or "open" if everybody may read everything'
    if where[-1:] == ["type"] and item["type"] == "missing":
        return f'[{where[0]}] needs a type, such as type = "{_EXAMPLE_TYPES.get(where[0], "folder")}"'
    if item["type"] in _NO_TABLE and where[0] in Settings.model_fields:
        place = "access.graph" if where[:2] == ["access", "graph"] else where[0]
        return f"{place!r} must be a section, not a value: write [{place}] and its keys below it"
    return f"{'.'.join(where)}: {item['msg']}"
