"""The access control list of a file or folder of a hierarchical namespace in; what one caller may do with it out.

The order of the rules, the names of the entries and the limits are those of
https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-access-control. Whatever does not parse grants nothing to anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ragstore.access.ids import parse_id
from ragstore.models import Principal

READ: Final = 4
WRITE: Final = 2
EXECUTE: Final = 1
UNREADABLE: Final = ""
"""The text of an ACL that is missing, or that nobody can make sense of: it grants nothing."""
SUPERUSER: Final = "$superuser"
"""Owner of what was made with a shared key. It is nobody's id: what only its owner may read, no caller reads by the ACL."""

_RIGHTS: Final = re.compile("([r-])([w-])([x-])")
_PERMISSIONS: Final = re.compile(r"([r-][w-][x-])([r-][w-][x-])([r-][w-])([xtT-])(\+?)")
_MOST_TEXTS: Final = 65_536
_MOST_CALLERS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """The access entries of one file or folder; rights are sums of `READ`, `WRITE` and `EXECUTE`."""

    owner: str
    group: str
    owner_rights: int
    group_rights: int
    other_rights: int
    mask: int | None = None
    """None where there is no named entry; then nothing is masked."""
    users: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    def to_text(self) -> str:
        """Canonical: two ACLs that grant the same in the same words have equal text, whatever the order of their entries."""
        entries = [f"user::{_shown(self.owner_rights)}"]
        entries += [f"user:{user}:{_shown(rights)}" for user, rights in sorted(self.users.items())]
        entries.append(f"group::{_shown(self.group_rights)}")
        entries += [f"group:{group}:{_shown(rights)}" for group, rights in sorted(self.groups.items())]
        entries += [] if self.mask is None else [f"mask::{_shown(self.mask)}"]
        return f"owner={self.owner};group={self.group};{','.join([*entries, f'other::{_shown(self.other_rights)}'])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, as an ACL sees it."""

    id: str
    groups: frozenset[str] = frozenset()
    superuser: bool = False
    """A shared key, or a role with `runAsSuperUser/action`: no ACL is asked."""

    @classmethod
    def of(cls, principal: Principal) -> Caller | None:
        """None where the principal's own id is none: it may do nothing. A group that is no id is left out."""
        return _caller(principal.id, frozenset(principal.groups))


@lru_cache(maxsize=_MOST_CALLERS)
def _caller(id: str, groups: frozenset[str]) -> Caller | None:
    """Kept, because one asks for every hit, and may be in hundreds of groups."""
    own = parse_id(id)
    if own is None:
        return None
    parsed = (parse_id(group) for group in groups)
    return Caller(id=own, groups=frozenset(group for group in parsed if group is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an ACL says to a caller, and the entry that said it."""

    granted: bool
    entry: str
    """As in the ACL, followed by ` & mask::r-x` where the mask was applied; for people."""


def acl_text(*, owner: str | None, group: str | None, permissions: str | None, acl: str | None) -> str:
    """The canonical text of what the service gives for one path, or `UNREADABLE`.

    `acl` may hold default entries, which say nothing of the path itself. Without `acl` the permissions (`rwxr-x---`, of which a sticky bit
    is ignored) are enough, unless a `+` at the end says that there is more.
    """
    entries = acl or _entries_of(permissions or "")
    found = parse_acl(f"owner={owner or ''};group={group or ''};{entries}")
    return UNREADABLE if found is None else found.to_text()


@lru_cache(maxsize=_MOST_TEXTS)
def parse_acl(text: str) -> Acl | None:
    """The ACL that `to_text` wrote, or None for anything else. Entries may come in any order, each at most once."""
    head = re.fullmatch("owner=([^;]*);group=([^;]*);(.*)", text, re.DOTALL)
    owner, group = (_identity(head[1]), _identity(head[2])) if head else (None, None)
    entries: dict[tuple[str, str], int] = {}
    for entry in head[3].split(",") if head else ():
        if entry.startswith("default:"):
            continue
        parsed = _parse_entry(entry)
        if parsed is None or parsed[0] in entries:
            return None
        entries[parsed[0]] = parsed[1]
    users, groups = _named("user", entries), _named("group", entries)
    mask = entries.get(("mask", ""))
    always = [entries.get((kind, "")) for kind in ("user", "group", "other")]
    if owner is None or group is None or None in always or (mask is None and (users or groups)):
        return None
    owner_rights, group_rights, other_rights = (rights or 0 for rights in always)
    return Acl(
        owner=owner,
        group=group,
        owner_rights=owner_rights,
        group_rights=group_rights,
        other_rights=other_rights,
        mask=mask,
        users=users,
        groups=groups,
    )


def decide(acl: Acl | None, caller: Caller, wanted: int) -> Decision:
    """Whether the caller has all the wanted rights, by the first rule that concerns it.

    1. A superuser may do everything. 2. The owner's entry decides for the owner, without the mask, also where it denies. 3. A named user's
    entry decides for that user, with the mask, also where it denies. 4. One single entry among those of its groups must have all that is
    wanted, with the mask. 5. Otherwise, for members of groups as well, the entry of all others decides, with the mask.
    """
    if caller.superuser:
        return Decision(granted=True, entry="superuser")
    if acl is None:
        return Decision(granted=False, entry="the ACL is missing or cannot be read")
    if caller.id == acl.owner:
        return Decision(granted=_has(acl.owner_rights, wanted), entry=f"user::{_shown(acl.owner_rights)} (owner)")
    mask = READ | WRITE | EXECUTE if acl.mask is None else acl.mask
    masked = "" if acl.mask is None else f" & mask::{_shown(acl.mask)}"
    if caller.id in acl.users:
        rights = acl.users[caller.id]
        return Decision(granted=_has(rights & mask, wanted), entry=f"user:{caller.id}:{_shown(rights)}{masked}")
    for name, rights in _entries_of_groups(acl, caller):
        if _has(rights & mask, wanted):
            return Decision(granted=True, entry=f"group:{name}:{_shown(rights)}{masked}")
    return Decision(granted=_has(acl.other_rights & mask, wanted), entry=f"other::{_shown(acl.other_rights)}{masked}")


def can(acl: Acl | None, caller: Caller, wanted: int) -> bool:
    """Whether the caller has all the wanted rights, see `decide`."""
    return decide(acl, caller, wanted).granted


def folders_above(path: str) -> Iterator[str]:
    """Every folder that must be traversed on the way to this path, from the root (the empty text) down."""
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _entries_of_groups(acl: Acl, caller: Caller) -> Iterator[tuple[str, int]]:
    if acl.group in caller.groups:
        yield "", acl.group_rights
    for group in sorted(caller.groups & acl.groups.keys()):
        yield group, acl.groups[group]


def _named(kind: str, entries: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {name: rights for (of, name), rights in entries.items() if of == kind and name}


def _parse_entry(entry: str) -> tuple[tuple[str, str], int] | None:
    kind, _, rest = entry.partition(":")
    name, colon, rights = rest.partition(":")
    found = _rights(rights)
    if not colon or found is None or kind not in {"user", "group", "mask", "other"}:
        return None
    if not name:
        return (kind, ""), found
    known = _identity(name)
    return ((kind, known), found) if known is not None and kind in {"user", "group"} else None


def _identity(text: str) -> str | None:
    return text if text == SUPERUSER else parse_id(text)


def _rights(text: str) -> int | None:
    found = _RIGHTS.fullmatch(text)
    return sum(value for letter, value in zip(found.groups(), (READ, WRITE, EXECUTE), strict=True) if letter != "-") if found else None


def _entries_of(permissions: str) -> str:
    """`rwxr-x--T` as entries; nothing where a `+` says that there are named ones, which this does not tell."""
    found = _PERMISSIONS.fullmatch(permissions)
    if found is None or found[5]:
        return ""
    last = "x" if found[4] in {"x", "t"} else "-"
    return f"user::{found[1]},group::{found[2]},other::{found[3]}{last}"


def _shown(rights: int) -> str:
    return "".join(letter if rights & value else "-" for letter, value in (("r", READ), ("w", WRITE), ("x", EXECUTE)))


def _has(rights: int, wanted: int) -> bool:
    return rights & wanted == wanted
