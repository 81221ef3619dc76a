"""What concerns a principal in, the filter that a store is asked with out, and until when it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragstore.access.azure.reader import Reader
from ragstore.access.azure.rulebook import Denial, Grant, Rulebook
from ragstore.access.azure.scopes import Reach, joined
from ragstore.access.conditions.reduction import next_change, prepare, reduce
from ragstore.access.conditions.translation import to_filter
from ragstore.access.conditions.tree import (
    HIERARCHICAL,
    READ_ACTION,
    SUPERUSER_ACTION,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Context,
    Exists,
    Not,
    Or,
    SourceName,
)
from ragstore.access.policy import Scope
from ragstore.filters import ALWAYS, NEVER, Always, Filter, Never, all_of, any_of, simplify

_PATH, _, _KEY = HIERARCHICAL.rpartition(":")
_IS_HIERARCHICAL: Final = Comparison(
    left=Attribute(source="Resource", path=_PATH, key=_KEY), operator="BoolEquals", right=Constant(value=True)
)
_NOBODY: Final = (NEVER, True)

_SAME_FOR_ALL: Final = frozenset[SourceName]({"Resource", "Request"})
"""Of requests there is one kind here, the reading of a blob."""

Translated = tuple[Filter, bool]
"""A filter, and whether it is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """A scope, and the time during which it may be used."""

    scope: Scope
    since: int
    """In ticks."""
    until: int | None = None
    """In ticks, exclusive: then a comparison with the time of day comes out another way. None is for ever."""

    def holds(self, now: int) -> bool:
        """Whether it may still be used; a clock that was set back ends it too."""
        return self.since <= now and (self.until is None or now < self.until)


class Translator:
    """Filters for the readers of one rulebook. What is the same for every principal is translated once, when the rulebook is new.

    A condition that asks nothing of the principal and of the environment is such, as most are; so is the reach of every scope.
    """

    def __init__(self, book: Rulebook) -> None:
        self._asked: dict[int, frozenset[SourceName]] = {}
        self._prepared: dict[tuple[int, str], Condition] = {}
        self._conditions: dict[tuple[int, str, bool], Translated] = {}
        self._places: dict[tuple[tuple[int, ...], bool], Translated] = {}
        self._book = book  # keeps alive what the keys above, which are identities, stand for
        anybody = Context()
        for grants in book.grants.values():
            for grant in grants:
                condition, role = grant.assignment.condition, grant.role
                if condition is None or role is None or not grant.matters or not self._is_fixed(condition):
                    continue
                for action, wanted in ((READ_ACTION, role.reads), (SUPERUSER_ACTION, role.superuser)):
                    if wanted:
                        self._condition(condition, replace(anybody, action=action))

    def filtering(self, reader: Reader, *, now: int, by_acl: Translated = _NOBODY) -> Filtering:
        """The filter of `Reader.may_read`, where `by_acl` is that of the ACLs."""
        context = reader.context(now=now)
        superuser = replace(context, action=SUPERUSER_ACTION)
        routes = [self._granted(reader.reading, context), by_acl]
        if reader.superuser:
            granted = self._granted(reader.superuser, superuser)
            routes.append(_all([to_filter(_IS_HIERARCHICAL), granted, *self._spared(reader.superuser_denied, superuser)]))
        found, exact = _all([_any(routes), *self._spared(reader.reading_denied, context)])
        changes = (next_change(condition, now) for condition in reader.conditions() if "Environment" in self._sources(condition))
        until = min((change for change in changes if change is not None), default=None)
        return Filtering(scope=Scope(filter=found, exact=exact), since=now, until=until)

    def _granted(self, grants: Sequence[Grant], context: Context) -> Translated:
        """That one of the grants covers the blob and has a true condition; what cannot be true of any blob is left out."""
        reaches: dict[int, list[Reach]] = defaultdict(list)
        conditions: dict[int, Condition | None] = {}
        for grant in grants:
            key = id(grant.assignment.condition)
            conditions[key] = grant.assignment.condition
            reaches[key].append(grant.reach)
        parts: list[Translated] = []
        for key, condition in conditions.items():
            left = (ALWAYS, True) if condition is None else self._condition(condition, context)
            if not isinstance(left[0], Never):
                parts.append(_all([self._place(reaches[key]), left]))
        return _any(parts)

    def _spared(self, denials: Iterable[Denial], context: Context) -> list[Translated]:
        """For each denial, that it does not cover the blob or has a condition that is surely false."""
        found = []
        for denial in denials:
            parts = [self._place([denial.reach], wanted=False)]
            if denial.assignment.condition is not None:
                parts.append(self._condition(denial.assignment.condition, context, wanted=False))
            found.append(_any(parts))
        return found

    def _condition(self, condition: Condition, context: Context, *, wanted: bool = True) -> Translated:
        """The filter of a condition at the time of the context."""
        if not self._is_fixed(condition):
            return _translated(reduce(self._prepare(condition, context.action), context, now=None), wanted=wanted)
        key = (id(condition), context.action, wanted)
        if key not in self._conditions:
            self._conditions[key] = _translated(reduce(condition, context, now=None), wanted=wanted)
        return self._conditions[key]

    def _prepare(self, condition: Condition, action: str) -> Condition:
        key = (id(condition), action)
        if key not in self._prepared:
            self._prepared[key] = prepare(condition, Context(action=action))
        return self._prepared[key]

    def _place(self, reaches: Sequence[Reach], *, wanted: bool = True) -> Translated:
        key = (tuple(sorted({id(reach) for reach in reaches})), wanted)
        if key not in self._places:
            self._places[key] = _translated(joined(reaches), wanted=wanted)
        return self._places[key]

    def _is_fixed(self, condition: Condition) -> bool:
        return self._sources(condition) <= _SAME_FOR_ALL

    def _sources(self, condition: Condition) -> frozenset[SourceName]:
        key = id(condition)
        if key not in self._asked:
            self._asked[key] = frozenset(_sources(condition))
        return self._asked[key]


def _translated(condition: Condition, *, wanted: bool) -> Translated:
    found, exact = to_filter(condition, wanted=wanted)
    return simplify(found), exact


def _sources(condition: Condition) -> Iterator[SourceName]:
    """Of every attribute of a condition."""
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _sources(part)
        case Not(part):
            yield from _sources(part)
        case Exists(attribute):
            yield attribute.source
        case Comparison(left=left, right=right):
            yield from (side.source for side in (left, right) if isinstance(side, Attribute))


def _any(parts: Sequence[Translated]) -> Translated:
    """The disjunction. It is exact too where an exact part is true of every row."""
    if any(exact and isinstance(part, Always) for part, exact in parts):
        return ALWAYS, True
    kept = [(part, exact) for part, exact in parts if not isinstance(part, Never)]
    return any_of(part for part, _ in kept), all(exact for _, exact in kept)


def _all(parts: Sequence[Translated]) -> Translated:
    """The conjunction. It is exact too where a part is true of no row: every filter is true at least where it should be."""
    if any(isinstance(part, Never) for part, _ in parts):
        return _NOBODY
    return all_of(part for part, _ in parts), all(exact for _, exact in parts)
