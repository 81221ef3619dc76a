"""The JSON of an Azure export in, its entries as flat objects out: those of the Azure CLI and those of ARM's REST API look the same."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access.ids import shorten
from ragstore.errors import ConfigError

_POWERSHELL: Final = frozenset({"RoleAssignmentId", "RoleDefinitionId", "ObjectId", "DenyAssignmentName", "IsCustom", "DataActions"})
_GUID_AT_END: Final = re.compile(r"(?:.*/)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})/*")
_ACTION: Final = re.compile("[A-Za-z0-9./*_-]+")
_NEAR: Final = 0.85

Entry = Mapping[str, object]


class EntryError(ValueError):
    """One entry cannot be used; the text says why and what to write, without naming the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a file holds, and how to make it."""

    what: str
    """Plural, as messages name it."""
    command: str
    """Which writes such a file."""
    fields: tuple[str, ...]
    """Those that decide: one that is misspelt must not count as absent."""


def load_json(data: bytes) -> object:
    """The JSON of a policy file. Raises `ValueError`, and `RecursionError`, for what is none, and for a key twice in one object."""
    return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_duplicates)


def read_entries(data: bytes, *, file: Path, kind: Kind) -> list[object]:
    """The entries of a list, or of an object with the list as `value`, as they stand.

    Raises `ConfigError` for what is no JSON, for a key that is there twice in one object, for PowerShell's form, whose keys are others, and
    for one page of several.
    """
    name = f"{kind.what} {str(file)!r}"
    try:
        document = load_json(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} cannot be read: {error}; write the file anew: {kind.command}") from error
    if isinstance(document, dict):
        if any(value for key, value in document.items() if key.lower().endswith("nextlink")):
            raise ConfigError(f"{name} is one page of several (it has a nextLink): join the lists named 'value' of all pages in one file")
        entries = document.get("value")
    else:
        entries = document
    if isinstance(document, dict) and not _POWERSHELL.isdisjoint(document):
        entries = [document]
    if not isinstance(entries, list):
        raise ConfigError(f"{name} must hold a list, or an object with a list named 'value': {kind.command}")
    if any(isinstance(entry, dict) and not _POWERSHELL.isdisjoint(entry) for entry in entries):
        raise ConfigError(f"{name} has the keys that Azure PowerShell writes, which are not read: {kind.command}")
    return entries


def flat(entry: object, kind: Kind) -> Entry:
    """The entry with what ARM puts under `properties` beside `id`, `name` and `type`.

    Raises `EntryError` where it is no object, where one key has two values, and where a key that decides is misspelt: read as absent, it
    would widen access.
    """
    if not isinstance(entry, dict):
        raise EntryError("is no object")
    _check_spelling(entry, ("properties",))
    found = {key: value for key, value in entry.items() if key != "properties"}
    properties = entry.get("properties")
    if properties is not None:
        if not isinstance(properties, dict):
            raise EntryError("has properties that are no object")
        for key, value in properties.items():
            if key in kind.fields and key in found and found[key] != value:
                raise EntryError(f"has two values of {key!r}: leave one")
            found[key] = value
    _check_spelling(found, kind.fields)
    return found


def guid_of(value: object) -> str | None:
    """The GUID with which an ARM id ends, or which is all of the text, in lower case."""
    found = _GUID_AT_END.fullmatch(value) if isinstance(value, str) else None
    return found[1].lower() if found else None


def name_of(entry: object, number: int) -> str:
    """How messages call an entry: its position, counted from 1, and the end of its id where it has one."""
    own = entry.get("id") if isinstance(entry, dict) else None
    guid = guid_of(own)
    if guid is None and isinstance(entry, dict):
        guid = guid_of(entry.get("name"))
    return f"entry {number} ({guid})" if guid else f"entry {number}"


def digest_of(data: bytes) -> str:
    """32 hex digits of a file's content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def texts(value: object, field: str) -> tuple[str, ...]:
    """A list of texts; absent and null are an empty one. Raises `EntryError` for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise EntryError(f"has {field} that are no list of texts")
    return tuple(value)


def action_patterns(value: object, field: str) -> tuple[str, ...]:
    """A list of patterns of actions. Raises `EntryError` as `texts` does, and for one that no action can match, such as `... /read `."""
    found = texts(value, field)
    for pattern in found:
        if not _ACTION.fullmatch(pattern):
            raise EntryError(f"has {field} with {shorten(pattern)}, which is no pattern of an action")
    return found


def _check_spelling(keys: Iterable[str], fields: tuple[str, ...]) -> None:
    folded = {field.lower(): field for field in fields}
    for key in keys:
        if key in fields:
            continue
        near = [folded[key.lower()]] if key.lower() in folded else difflib.get_close_matches(key, fields, n=1, cutoff=_NEAR)
        if near:
            raise EntryError(f"has the unknown key {shorten(key)}: write {near[0]!r}")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """JSON lets the last of two equal keys win: here that could hide a condition, or a list of groups."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"a key is there twice in one object: {', '.join(twice)[:200]}")
    return found
