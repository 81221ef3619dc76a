"""All ACLs that an index knows of in; who reads which blob, and a filter for a query, out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ragstore.access.acl import EXECUTE, READ, Acl, Caller, Decision, can, decide, folders_above, parse_acl
from ragstore.access.labels import acl_label
from ragstore.filters import NEVER, AnyOf, Filter, OneOf, StartsWith, all_of, any_of, negate
from ragstore.models import AccessAttributes, Principal

Container = tuple[str, str]
"""Account and container."""

MOST_PREFIXES: Final = 500
"""A filter that excludes more folders than this lets the smallest of them through, and leaves them to the check of each hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One ACL on the way to a blob, and what it said; for people."""

    path: str
    """Of a folder, empty for the root, or of the blob itself, which comes last."""
    wanted: str
    """`x` of a folder, `r` of the blob."""
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class AclTable:
    """The ACLs of one moment. A blob is read where its own ACL gives `r` and every folder above it, from the root on, gives `x`."""

    version: str = ""
    """Another one whenever anything below is another."""
    folders: Mapping[Container, Mapping[str, str]] = field(default_factory=dict)
    """Text of each folder's ACL by path; the root is the empty path. A folder that is not here cannot be traversed by anybody."""
    files: frozenset[str] = frozenset()
    """Every text that is the ACL of some blob; others may be here as well."""

    def readable(self, principal: Principal, attributes: AccessAttributes, *, superuser: bool = False) -> bool:
        """Whether ACLs let this principal read the blob. Never where the blob has none: then its account has no hierarchical namespace."""
        caller = _caller(principal, superuser=superuser)
        if caller is None or attributes.acl is None:
            return False
        above = self.folders.get((attributes.account, attributes.container), {})
        file = parse_acl(attributes.acl)
        return can(file, caller, READ) and all(can(_at(above, folder), caller, EXECUTE) for folder in folders_above(attributes.path))

    def steps(self, principal: Principal, attributes: AccessAttributes, *, superuser: bool = False) -> list[Step]:
        """What each ACL says, from the root to the blob; nothing where the blob has none, or the principal's id is none."""
        caller = _caller(principal, superuser=superuser)
        if caller is None or attributes.acl is None:
            return []
        above = self.folders.get((attributes.account, attributes.container), {})
        found = [
            Step(path=folder, wanted="x", decision=decide(_at(above, folder), caller, EXECUTE)) for folder in folders_above(attributes.path)
        ]
        return [*found, Step(path=attributes.path, wanted="r", decision=decide(parse_acl(attributes.acl), caller, READ))]

    def filter_for(self, principal: Principal) -> tuple[Filter, bool]:
        """A filter that holds at least for the rows (with columns up to date) of all blobs that `readable` grants; whether it is exact.

        It is exact where every folder above every blob is in `folders`, which the ledger sees to, and where no more than `MOST_PREFIXES`
        have to be excluded.
        """
        caller = Caller.of(principal)
        labels = frozenset(acl_label(text) for text in self.files if can(parse_acl(text), caller, READ)) if caller else frozenset()
        if caller is None or not labels:
            return NEVER, True
        parts: list[Filter] = []
        exact, left = True, MOST_PREFIXES
        for (account, container), folders in sorted(self.folders.items()):
            denied = sorted(_denied(folders, caller))
            top = _topmost(denied)
            if "" not in folders or "" in top:
                continue
            kept = _largest(top, denied, left)
            left -= len(kept)
            exact = exact and len(kept) == len(top)
            outside = all_of(negate(StartsWith("path", f"{folder}/")) for folder in kept)
            parts.append(all_of((OneOf("account", frozenset({account})), OneOf("container", frozenset({container})), outside)))
        places = any_of(parts)
        return (NEVER, True) if places == NEVER else (all_of((AnyOf("labels", labels), places)), exact)


class AclRecords(Protocol):
    """Where ACLs are kept: the ledger."""

    def version(self) -> str:
        """Another text whenever an ACL came, changed or went; cheap."""
        ...

    def folders(self) -> Iterable[tuple[str, str, str, str]]:
        """Account, container, path and ACL of every folder."""
        ...

    def files(self) -> Iterable[str]:
        """Every ACL of a blob."""
        ...


class AclTables:
    """The newest `AclTable`, read again only when its records say that they changed. May be called from any thread."""

    def __init__(self, records: Callable[[], AclRecords]) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._table: AclTable | None = None

    def __call__(self) -> AclTable:
        """The table as it is now: one look at the version, as a rule. Raises as the ledger does, where it cannot be read."""
        records = self._records()
        version = records.version()  # before: what changes while the rest is read is read again next time
        with self._lock:
            if self._table is None or self._table.version != version:
                self._table = _table(version, records)
            return self._table


NO_ACLS: Final = AclTable()
"""Of an index without a hierarchical namespace: no blob is read by its ACL."""


def _table(version: str, records: AclRecords) -> AclTable:
    folders: dict[Container, dict[str, str]] = {}
    texts: dict[str, str] = {}  # thousands of folders share few texts
    for account, container, path, acl in records.folders():
        folders.setdefault((account, container), {})[path] = texts.setdefault(acl, acl)
    return AclTable(version=version, folders=folders, files=frozenset(records.files()))


def _caller(principal: Principal, *, superuser: bool) -> Caller | None:
    caller = Caller.of(principal)
    return Caller(id=caller.id, groups=caller.groups, superuser=True) if caller and superuser else caller


def _at(folders: Mapping[str, str], folder: str) -> Acl | None:
    text = folders.get(folder)
    return None if text is None else parse_acl(text)


def _denied(folders: Mapping[str, str], caller: Caller) -> Iterator[str]:
    """The folders whose own ACL does not let the caller through; each text is decided once."""
    decided: dict[str, bool] = {}
    for path, text in folders.items():
        if text not in decided:
            decided[text] = can(parse_acl(text), caller, EXECUTE)
        if not decided[text]:
            yield path


def _topmost(paths: Sequence[str]) -> list[str]:
    """Those of the paths that are not below another of them."""
    given = set(paths)
    return [path for path in paths if not any(above in given for above in folders_above(path))] if "" not in given else [""]


def _largest(top: Sequence[str], denied: Sequence[str], most: int) -> Sequence[str]:
    """At most so many, those first under which most folders are denied."""
    if len(top) <= most:
        return top
    under = dict.fromkeys(top, 0)
    for path in denied:
        for above in (*folders_above(path), path):
            if above in under:
                under[above] += 1
    return sorted(sorted(top, key=lambda path: (-under[path], path))[:most])
