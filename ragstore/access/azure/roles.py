"""Role definitions in, whether a role reads blobs out; the roles that Azure has built in for blobs need no file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ragstore.access.azure.documents import Entry, EntryError, Kind, action_patterns, digest_of, flat, guid_of, name_of, read_entries
from ragstore.access.conditions.tree import READ_ACTION, SUPERUSER_ACTION
from ragstore.access.conditions.values import fold
from ragstore.patterns import matches_action

KIND: Final = Kind(
    what="role definitions",
    command="az role definition list -o json > roles.json",
    fields=("roleName", "permissions"),
)
_PERMISSION: Final = Kind(
    what="permissions", command="", fields=("actions", "notActions", "dataActions", "notDataActions", "condition", "conditionVersion")
)
_BLOBS: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What of a role matters here."""

    name: str
    reads: bool = False
    """Its data actions hold the reading of blobs."""
    superuser: bool = False
    """They hold the action that, in a hierarchical namespace, allows everything whatever the ACLs."""

    @property
    def matters(self) -> bool:
        """Whether anything can be read with it."""
        return self.reads or self.superuser


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The roles of a file, which count before those that are built in."""

    found: Mapping[str, Role | None]
    """By GUID in lower case; None for a definition that cannot be used."""
    problems: tuple[str, ...] = ()
    digest: str = "built in"
    """Changes with every byte of the file."""

    def get(self, guid: str) -> Role | None:
        """The role with this GUID; None where it is unresolved, and grants nothing."""
        return self.found[guid] if guid in self.found else BUILT_IN.get(guid)


def includes(patterns: Iterable[str], action: str) -> bool:
    """Whether one of the patterns matches the action: without case, `*` is any text, `/` included."""
    folded = fold(action)
    return any(matches_action(folded, fold(pattern)) for pattern in patterns)


def role_of(name: str, *, data_actions: Iterable[str] = (), not_data_actions: Iterable[str] = ()) -> Role:
    """A role with these data actions but those."""
    wanted, unwanted = tuple(data_actions), tuple(not_data_actions)
    held = {action: includes(wanted, action) and not includes(unwanted, action) for action in (READ_ACTION, SUPERUSER_ACTION)}
    return Role(name=name, reads=held[READ_ACTION], superuser=held[SUPERUSER_ACTION])


def parse_roles(data: bytes, *, file: Path) -> Roles:
    """The roles of `az role definition list`, or of ARM's REST API.

    A definition that cannot be used leaves its role unresolved, even a built-in one, and is reported, and so are two different ones of the
    same GUID. Raises `ConfigError` as `read_entries` does.
    """
    found: dict[str, Role | None] = {}
    problems: list[str] = []
    for number, entry in enumerate(read_entries(data, file=file, kind=KIND), start=1):
        place = f"role definitions {file.name!r}, {name_of(entry, number)}"
        guid = _guid(entry)
        try:
            role = _role(flat(entry, KIND), guid, earlier=found)
        except EntryError as error:
            role = None
            problems.append(f"{place} {error}; assignments of this role grant nothing")
        if guid is not None:
            found[guid] = role
    return Roles(found=found, problems=tuple(problems), digest=digest_of(data))


def _guid(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    return guid_of(entry.get("id")) or guid_of(entry.get("name"))


def _role(entry: Entry, guid: str | None, *, earlier: Mapping[str, Role | None]) -> Role:
    if guid is None:
        raise EntryError("has no GUID in its id or name")
    role = _read(entry, guid)
    if earlier.get(guid, role) != role:
        raise EntryError("differs from an earlier one of the same GUID: leave the right one")
    return role


def _read(entry: Entry, guid: str) -> Role:
    name = entry.get("roleName")
    permissions = entry.get("permissions")
    if not isinstance(permissions, list):
        raise EntryError("has no list of permissions")
    wanted: list[str] = []
    unwanted: list[str] = []
    for item in permissions:
        permission = flat(item, _PERMISSION)
        if permission.get("condition") is None:
            wanted += action_patterns(permission.get("dataActions"), "dataActions")
        elif includes(action_patterns(permission.get("dataActions"), "dataActions"), READ_ACTION):
            raise EntryError("reads blobs under a condition of the role itself, which is not evaluated: put it on the assignment")
        unwanted += action_patterns(permission.get("notDataActions"), "notDataActions")
    return role_of(name if isinstance(name, str) and name else guid, data_actions=wanted, not_data_actions=unwanted)


def _built_in() -> dict[str, Role]:
    """Source of the roles for blobs: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/storage."""
    actions = ("delete", "read", "write", "move/action", "add/action")
    roles = {
        "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": role_of("Storage Blob Data Owner", data_actions=[f"{_BLOBS}/*"]),
        "ba92f5b4-2d11-453d-a403-e96b0029c9fe": role_of(
            "Storage Blob Data Contributor", data_actions=[f"{_BLOBS}/{action}" for action in actions]
        ),
        "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": role_of("Storage Blob Data Reader", data_actions=[READ_ACTION]),
    }
    return roles | {guid: role_of(name) for guid, name in _WITHOUT_BLOBS.items()}


_WITHOUT_BLOBS: Final = {
    "8e3af657-a8ff-443c-a75c-2fe8c4bcb635": "Owner",
    "b24988ac-6180-42a0-ab88-20f7382dd24c": "Contributor",
    "acdd72a7-3385-48ef-bd42-f606fba81ae7": "Reader",
    "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9": "User Access Administrator",
    "f58310d9-a9f6-439a-9e8d-f62e7b41a168": "Role Based Access Control Administrator",
    "17d1049b-9a84-46fb-8f53-869881c3d3ab": "Storage Account Contributor",
    "81a9662b-bebf-436f-a333-f67b29880f12": "Storage Account Key Operator Service Role",
    "e5e2a7ff-d759-4cd2-bb51-3152d37e2eb1": "Storage Account Backup Contributor",
    "db58b8e5-c6ad-4a2a-8342-4190687cbf4a": "Storage Blob Delegator",
    "c12c1c16-33a1-487b-954d-41c89c60f349": "Reader and Data Access",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "19e7f393-937e-4f77-808e-94535e297925": "Storage Queue Data Reader",
    "8a0f0c08-91a1-4084-bc3d-661d67233fed": "Storage Queue Data Message Processor",
    "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a": "Storage Queue Data Message Sender",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "76199698-9eea-4c19-bc75-cec21354c6b6": "Storage Table Data Reader",
    "0c867c2a-1d8c-454a-a3db-ab2ea1bdc8bb": "Storage File Data SMB Share Contributor",
    "a7264617-510b-434b-a828-9731dc254ea7": "Storage File Data SMB Share Elevated Contributor",
    "aba4ae5f-2193-4029-9191-0cb91df5e314": "Storage File Data SMB Share Reader",
    "43d0d8ad-25c7-4714-9337-8ba259a9fe05": "Monitoring Reader",
    "39bc4728-0917-49c7-9d2c-d95423bc2eb4": "Security Reader",
}
"""Common roles by which no blob can be read; they are named so that their assignments are not reported as unresolved."""

BUILT_IN: Final[Mapping[str, Role]] = MappingProxyType(_built_in())
"""By GUID in lower case."""
