"""The JSON of role assignments in, the assignments that can be used out, and a sentence for each that cannot: those grant nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access.azure.absence import OF_RESOURCES, uncertain
from ragstore.access.azure.documents import Entry, EntryError, Kind, digest_of, flat, guid_of, name_of, read_entries
from ragstore.access.azure.scopes import AzureScope, parse_scope
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.tree import Condition
from ragstore.access.ids import ID_RULE, parse_id, shorten
from ragstore.errors import ConfigError

KIND: Final = Kind(
    what="role assignments",
    command="az role assignment list --all --include-inherited -o json > assignments.json",
    fields=("principalId", "roleDefinitionId", "scope", "condition", "conditionVersion"),
)
VERSION: Final = "2.0"
"""Of the language of conditions, the only one that is supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A role, granted to one principal or group within a scope, under a condition or without one."""

    name: str
    """Where it stands, for messages: the position in the file and its GUID."""
    principal: str
    """Object id of a user, a group, a service principal or a managed identity."""
    role: str
    """GUID of the role's definition, in lower case."""
    role_name: str | None = None
    """As the file calls it; decides nothing."""
    scope: AzureScope
    condition: Condition | None = None
    text: str | None = None
    """The condition as it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    """What a file of role assignments says."""

    assignments: tuple[Assignment, ...]
    problems: tuple[str, ...]
    digest: str
    """Changes with every byte of the file."""


def parse_assignments(data: bytes, *, file: Path) -> Assignments:
    """The assignments of `az role assignment list`, or of ARM's REST API. Raises `ConfigError` as `read_entries` does."""
    found: list[Assignment] = []
    problems: list[str] = []
    parsed: dict[str, Condition] = {}
    entries = read_entries(data, file=file, kind=KIND)
    for number, entry in enumerate(entries, start=1):
        name = name_of(entry, number)
        try:
            found.append(_assignment(flat(entry, KIND), name, parsed))
        except EntryError as error:
            problems.append(f"role assignments {file.name!r}, {name} {error}; it grants nothing")
    return Assignments(assignments=tuple(found), problems=tuple(problems), digest=digest_of(data))


def condition_of(entry: Entry, parsed: dict[str, Condition]) -> tuple[Condition | None, str | None]:
    """The condition of an entry and its text; None for both where it has none. `parsed` keeps equal texts from being parsed again.

    Raises `EntryError` for an empty condition, another version than 2.0, and what does not parse.
    """
    text, version = entry.get("condition"), entry.get("conditionVersion")
    if text is None:
        return None, None
    if not isinstance(text, str) or not text.strip():
        raise EntryError("has an empty condition: null says that there is none")
    if version != VERSION:
        shown = shorten(version) if isinstance(version, str) else "none"
        raise EntryError(f"has conditionVersion {shown}, and only '2.0' is evaluated")
    if text not in parsed:
        try:
            parsed[text] = uncertain(parse(text), sources=OF_RESOURCES)
        except ConfigError as error:
            raise EntryError(f"has a condition that does not parse: {error}") from error
    return parsed[text], text


def _assignment(entry: Entry, name: str, parsed: dict[str, Condition]) -> Assignment:
    given = entry.get("principalId")
    principal = parse_id(given) if isinstance(given, str) else None
    if principal is None:
        raise EntryError(f"has no principalId ({ID_RULE})")
    role = guid_of(entry.get("roleDefinitionId"))
    if role is None:
        raise EntryError("has no roleDefinitionId that ends with a GUID; the name of a role does not count")
    place = entry.get("scope")
    scope = parse_scope(place) if isinstance(place, str) else None
    if scope is None:
        raise EntryError(f"has no scope that is an ARM id ({shorten(place) if isinstance(place, str) else 'it is missing'})")
    condition, text = condition_of(entry, parsed)
    if "canDelegate" in entry and "condition" not in entry:
        raise EntryError(f"does not say whether it has a condition, as old versions of the Azure CLI write it; update it: {KIND.command}")
    shown = entry.get("roleDefinitionName")
    return Assignment(
        name=name,
        principal=principal,
        role=role,
        role_name=shown if isinstance(shown, str) and shown else None,
        scope=scope,
        condition=condition,
        text=text,
    )
