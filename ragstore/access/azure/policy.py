"""Files of role assignments, and the ACLs of blobs, in; who reads what as Azure Storage decides it out."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar, final

from typing_extensions import override

from ragstore.access.acl_table import AclTable
from ragstore.access.azure.assignments import parse_assignments
from ragstore.access.azure.deny import DenyAssignments, parse_deny_assignments
from ragstore.access.azure.explaining import explain
from ragstore.access.azure.filtering import Filtering, Translator
from ragstore.access.azure.reader import Reader
from ragstore.access.azure.roles import Roles, parse_roles
from ragstore.access.azure.rulebook import Rulebook, compile_rules, digest_of_rules
from ragstore.access.conditions.values import ticks_at
from ragstore.access.explanation import Explanation
from ragstore.access.labels import azure_columns
from ragstore.access.policy import Policy, Scope, digest_of_columns
from ragstore.access.principals import access_digest
from ragstore.access.watched import WatchedFile
from ragstore.errors import AccessError
from ragstore.filters import NEVER
from ragstore.models import AccessAttributes, AccessColumns, Principal

_MOST_PRINCIPALS: Final = 512
"""Kept in memory; of a principal with some hundreds of assignments that is about a megabyte."""

Value = TypeVar("Value")


@final
class AzurePolicy(Policy):
    """A blob is read by whom Azure Storage lets read it: design.md §8, in the files that Azure's own command line writes.

    - `assignments`: `az role assignment list --all --include-inherited -o json`.
    - `role_definitions`: `az role definition list -o json`; the built-in roles for blobs need none.
    - `deny_assignments`: a file of ARM's REST API; None where it was said that there are none.
    - `accounts`: ARM ids of the storage accounts, by which assignments to resource groups and subscriptions count (`azure.scopes`).
    - `acls`: gives the ACLs of the index, for accounts with a hierarchical namespace; without it no ACL grants.
    - `clock`: nanoseconds since 1970, for `UtcNow`.

    Files are read again when they change; one that cannot be read denies everyone until it is mended. An assignment that cannot be used
    grants nothing, one of denial that cannot be understood denies, and `lint` reports both. Raises `ConfigError` where a file cannot be
    read at the start, or `accounts` are none.
    """

    mode = "azure"

    def __init__(
        self,
        *,
        assignments: Path,
        role_definitions: Path | None = None,
        deny_assignments: Path | None = None,
        accounts: Sequence[str] = (),
        acls: Callable[[], AclTable] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._assignments = WatchedFile(assignments, lambda data: parse_assignments(data, file=assignments))
        self._roles = WatchedFile(role_definitions, lambda data: parse_roles(data, file=role_definitions)) if role_definitions else None
        self._denials = (
            WatchedFile(deny_assignments, lambda data: parse_deny_assignments(data, file=deny_assignments)) if deny_assignments else None
        )
        self._accounts = tuple(accounts)
        self._acls = acls
        self._clock = clock
        self._compiled: tuple[Rulebook, Translator] | None = None
        self._readers: _Recent[Reader] = _Recent(_MOST_PRINCIPALS)
        self._filterings: _Recent[Filtering] = _Recent(_MOST_PRINCIPALS)
        self.rulebook()

    @property
    @override
    def fingerprint(self) -> str:
        return digest_of_columns("azure")  # what is assigned to whom changes no column

    @property
    @override
    def digest(self) -> str:
        return self.rulebook().digest

    @override
    def columns(self, attributes: AccessAttributes, *, media_type: str) -> AccessColumns:
        return azure_columns(attributes, media_type=media_type)

    @override
    def problems(self, attributes: AccessAttributes) -> list[str]:
        return []

    @override
    def lint(self) -> list[str]:
        return list(self.rulebook().problems)

    @override
    def filter_for(self, principal: Principal) -> Scope:
        now = ticks_at(self._clock())
        table = self._table()
        book, translator = self._rules()
        key = (access_digest(principal), book.digest)
        filtering_key = (*key, table.version if table else "")
        filtering = self._filterings.get(filtering_key)
        if filtering is None or not filtering.holds(now):
            reader = self._reader(principal, book, key)
            by_acl = table.filter_for(principal) if table else (NEVER, True)
            filtering = (
                translator.filtering(reader, now=now, by_acl=by_acl) if reader.ids else Filtering(scope=Scope(filter=NEVER), since=now)
            )
            self._filterings.put(filtering_key, filtering)
        return filtering.scope

    @override
    def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
        return self.grants_for(principal)(attributes)

    @override
    def grants_for(self, principal: Principal) -> Callable[[AccessAttributes], bool]:
        # Whether a file changed and what its rules say of the principal is asked once, not of every blob: it takes longer than to decide.
        book = self.rulebook()
        reader = self._reader(principal, book, (access_digest(principal), book.digest))
        now = ticks_at(self._clock())

        def may_read(attributes: AccessAttributes) -> bool:
            return bool(reader.ids) and reader.may_read(attributes, now=now, by_acl=lambda: self._readable(principal, attributes))

        return may_read

    @override
    def explain(self, principal: Principal, attributes: AccessAttributes) -> Explanation:
        return explain(
            principal,
            attributes,
            book=self.rulebook(),
            table=self._table(),
            now=ticks_at(self._clock()),
            allowed=self.grants(principal, attributes),
        )

    def rulebook(self) -> Rulebook:
        """All that the files say now. Raises `AccessError` where one of them has become unreadable."""
        return self._rules()[0]

    def _table(self) -> AclTable | None:
        try:
            return self._acls() if self._acls else None
        except AccessError:
            raise
        except Exception as error:
            raise AccessError("the ACLs cannot be read from the ledger, so nothing can be shown; try again when it is back") from error

    def _readable(self, principal: Principal, attributes: AccessAttributes) -> bool:
        table = self._table()
        return table is not None and table.readable(principal, attributes)

    def _rules(self) -> tuple[Rulebook, Translator]:
        assignments = self._assignments.current()
        roles = self._roles.current() if self._roles else Roles(found={})
        denials = self._denials.current() if self._denials else DenyAssignments()
        compiled = self._compiled
        if compiled is None or compiled[0].digest != digest_of_rules(assignments, roles, denials, self._accounts):
            book = compile_rules(assignments, roles, denials, self._accounts)
            compiled = self._compiled = (book, Translator(book))
        return compiled

    def _reader(self, principal: Principal, book: Rulebook, key: tuple[str, str]) -> Reader:
        reader = self._readers.get(key)
        if reader is None:
            reader = Reader.of(principal, book)
            self._readers.put(key, reader)
        return reader


class _Recent(Generic[Value]):
    """The values that were asked for last, at most so many. May be called from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, ...], Value] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> Value | None:
        """The value, or None where it is not kept."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: tuple[str, ...], value: Value) -> None:
        """Keep a value, and forget the one that was not asked for longest."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
