"""The JSON of deny assignments in, what they deny out; one that cannot be understood denies everyone all that it might be about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access.azure.absence import ALL_SOURCES, uncertain
from ragstore.access.azure.assignments import condition_of
from ragstore.access.azure.documents import Entry, EntryError, Kind, action_patterns, digest_of, flat, name_of, read_entries
from ragstore.access.azure.roles import includes
from ragstore.access.azure.scopes import AzureScope, parse_scope
from ragstore.access.conditions.tree import READ_ACTION, SUPERUSER_ACTION, Condition
from ragstore.access.ids import parse_id

KIND: Final = Kind(
    what="deny assignments",
    command=(
        "az rest --method get --url "
        "'/subscriptions/ID/providers/Microsoft.Authorization/denyAssignments?api-version=2022-04-01' > deny.json"
    ),
    fields=("permissions", "principals", "excludePrincipals", "scope", "doNotApplyToChildScopes", "condition", "conditionVersion"),
)
_PERMISSION: Final = Kind(
    what="permissions", command="", fields=("actions", "notActions", "dataActions", "notDataActions", "condition", "conditionVersion")
)
EVERYONE: Final = "00000000-0000-0000-0000-000000000000"
"""The principal that stands for all of a directory (https://learn.microsoft.com/azure/role-based-access-control/deny-assignments)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyAssignment:
    """Actions that some principals may not take within a scope, whatever is granted to them."""

    name: str
    principals: frozenset[str] | None
    """None is everyone."""
    excluded: frozenset[str] = frozenset()
    """Whom it does not concern, as a principal or as a group."""
    scope: AzureScope | None
    """None is everywhere, because it could not be read."""
    only_itself: bool = False
    """It does not apply to child scopes."""
    reads: bool
    """It denies the reading of blobs."""
    superuser: bool
    """It denies the action that allows everything in a hierarchical namespace."""
    condition: Condition | None = None
    text: str | None = None

    def concerns(self, ids: frozenset[str]) -> bool:
        """Whether it is about who has these ids."""
        return (self.principals is None or not self.principals.isdisjoint(ids)) and self.excluded.isdisjoint(ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyAssignments:
    """What a file of deny assignments says, as far as it is about blobs."""

    assignments: tuple[DenyAssignment, ...] = ()
    scopes: tuple[AzureScope, ...] = ()
    """Of all, also of those that are about other things."""
    problems: tuple[str, ...] = ()
    digest: str = "none"


def parse_deny_assignments(data: bytes, *, file: Path) -> DenyAssignments:
    """The deny assignments of ARM's REST API, or the same as flat objects. Raises `ConfigError` as `read_entries` does."""
    found: list[DenyAssignment] = []
    scopes: list[AzureScope] = []
    problems: list[str] = []
    for number, entry in enumerate(read_entries(data, file=file, kind=KIND), start=1):
        name = name_of(entry, number)
        assignment, doubts = _deny_assignment(entry, name)
        problems += [f"deny assignments {file.name!r}, {name} {doubt}" for doubt in doubts]
        if assignment.scope is not None:
            scopes.append(assignment.scope)
        if assignment.reads or assignment.superuser:
            found.append(assignment)
    return DenyAssignments(assignments=tuple(found), scopes=tuple(scopes), problems=tuple(problems), digest=digest_of(data))


def _deny_assignment(given: object, name: str) -> tuple[DenyAssignment, list[str]]:
    """The assignment, and what about it could not be read, each part of which then denies as much as it can."""
    try:
        entry = flat(given, KIND)
    except EntryError as error:
        return _total(name, _scope_of(given)), [f"{error}; it denies everyone all blobs that may be in its scope"]
    doubts: list[str] = []
    try:
        reads, superuser = _denied(entry, doubts)
        scope = _scope_of(entry)
        if scope is None:
            doubts.append("has no scope that is an ARM id; it denies everywhere")
        principals = _principals(entry)
    except EntryError as error:
        return _total(name, _scope_of(entry)), [f"{error}; it denies everyone all blobs that may be in its scope"]
    condition, text = None, None
    try:
        condition, text = condition_of(entry, {})
    except EntryError as error:
        doubts.append(f"{error}; it denies as if it had no condition")
    assignment = DenyAssignment(
        name=name,
        principals=principals,
        excluded=_excluded(entry, doubts),
        scope=scope,
        only_itself=entry.get("doNotApplyToChildScopes") is True,
        reads=reads,
        superuser=superuser,
        condition=None if condition is None else uncertain(condition, sources=ALL_SOURCES),
        text=text,
    )
    return assignment, doubts if reads or superuser else []


def _denied(entry: Entry, doubts: list[str]) -> tuple[bool, bool]:
    permissions = entry.get("permissions")
    if not isinstance(permissions, list) or not permissions:
        raise EntryError("has no list of permissions")
    reads = superuser = False
    for item in permissions:
        permission = flat(item, _PERMISSION)
        wanted = action_patterns(permission.get("dataActions"), "dataActions")
        unwanted = action_patterns(permission.get("notDataActions"), "notDataActions")
        denied = [includes(wanted, action) and not includes(unwanted, action) for action in (READ_ACTION, SUPERUSER_ACTION)]
        reads, superuser = reads or denied[0], superuser or denied[1]
        if any(denied) and permission.get("condition") is not None:
            doubts.append("has a permission with a condition of its own, which is not evaluated; it denies as if it had none")
    return reads, superuser


def _principals(entry: Entry) -> frozenset[str] | None:
    """Whom it concerns; None for everyone."""
    listed = entry.get("principals")
    if not isinstance(listed, list) or not listed:
        raise EntryError("has no list of principals")
    found = [_id_of(item) for item in listed]
    if None in found:
        raise EntryError("has a principal without an id")
    return None if EVERYONE in found else frozenset(own for own in found if own is not None)


def _excluded(entry: Entry, doubts: list[str]) -> frozenset[str]:
    listed = entry.get("excludePrincipals")
    if listed is None:
        return frozenset()
    found = [_id_of(item) for item in listed] if isinstance(listed, list) else [None]
    if None in found or EVERYONE in found:
        doubts.append("has an entry of excludePrincipals without an id of its own; it excludes nobody")
    return frozenset(own for own in found if own is not None and own != EVERYONE)


def _id_of(item: object) -> str | None:
    given = item.get("id") if isinstance(item, dict) else None
    return parse_id(given) if isinstance(given, str) else None


def _scope_of(entry: object) -> AzureScope | None:
    """The scope of an entry, whatever else is wrong with it."""
    if not isinstance(entry, dict):
        return None
    properties = entry.get("properties")
    places = [part.get("scope") for part in (entry, properties) if isinstance(part, dict) and part.get("scope") is not None]
    return parse_scope(places[0]) if len(places) == 1 and isinstance(places[0], str) else None


def _total(name: str, scope: AzureScope | None) -> DenyAssignment:
    return DenyAssignment(name=name, principals=None, scope=scope, reads=True, superuser=True)
