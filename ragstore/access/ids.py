"""Text that lists principals in, the ids that parse and those that do not out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ragstore.models import Principal

_GUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
ID_RULE: Final = "an id is a GUID, or a letter or digit followed by at most 127 of A-Z a-z 0-9 . _ @ + -"

_SHOWN_LENGTH: Final = 60
_SHOWN_COUNT: Final = 5


def parse_id(text: str) -> str | None:
    """The id as it is compared (a GUID in lower case, any other as it stands), or None where it is none."""
    if _GUID.fullmatch(text):
        return text.lower()
    return text if _TOKEN.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdList:
    """What a list of ids says. An entry that is no id grants nothing, to nobody, and is kept to be reported."""

    granted: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()

    def problems(self, place: str) -> list[str]:
        """One sentence for each refused entry (at most five, then a count), naming the place where it stands."""
        found = [f"{place}: {shorten(entry)} grants nothing: {ID_RULE}" for entry in self.refused[:_SHOWN_COUNT]]
        if len(self.refused) > _SHOWN_COUNT:
            found.append(f"{place}: {len(self.refused) - _SHOWN_COUNT} more entries that are no ids")
        return found


def split_ids(text: str, *, commas: bool) -> IdList:
    """Ids separated by spaces, and by commas where they are allowed (index tags cannot hold any).

    Any other white space is part of an entry, which then is no id: nothing is guessed where it would grant.
    """
    return collect_ids(re.split("[ ,]+" if commas else " +", text))


def collect_ids(entries: Iterable[str]) -> IdList:
    """Ids that stand each for itself; empty entries are left out."""
    granted: set[str] = set()
    refused: list[str] = []
    for entry in entries:
        parsed = parse_id(entry)
        if parsed is not None:
            granted.add(parsed)
        elif entry:
            refused.append(entry)
    return IdList(granted=frozenset(granted), refused=tuple(refused))


def ids_of(principal: Principal) -> frozenset[str]:
    """The ids under which this principal may be granted something: none at all where its own id is none."""
    own = parse_id(principal.id)
    if own is None:
        return frozenset()
    groups = (parse_id(group) for group in principal.groups)
    return frozenset({own, *(group for group in groups if group is not None)})


def shorten(text: str) -> str:
    """Quoted for a message, printable, and never longer than a line."""
    return ascii(text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "...")
