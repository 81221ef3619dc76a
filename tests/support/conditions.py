"""Conditions and blobs in, where a filter and plain evaluation disagree out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from hypothesis import strategies as st

from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.reduction import reduce
from ragstore.access.conditions.resource import resource_of
from ragstore.access.conditions.translation import to_filter
from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    HIERARCHICAL,
    PATH,
    TAGS,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Context,
    Exists,
    Not,
    Or,
    Quantifier,
    SourceName,
    Truth,
    Values,
)
from ragstore.access.conditions.values import OPERATORS
from ragstore.filters import Filter, matches
from ragstore.models import AccessAttributes, AccessColumns
from ragstore.testing.conditions import NAMES, PATHS, PATTERNS, PREFIXES, TAG_KEYS, WORDS

HOSTILE_PATHS = (
    "docs/\ud800",
    "docs/\U0010ffff",
    "a\udfff*",
    "docs/\U0001f600.md",
    "a\nb",
    "\u00dfa",
    "A\u017f",
    "\\",
    "%",
    "_",
    "doc_s/'",
    "ab",
)

CASE_TRAPS = ("stra\u00dfe", "STRASSE", "k", "\u212a", "\u0131", "i", "A\u017f", "as")
"""Of which pairs are equal where case is folded as for prose, and no two are where it is folded one to one."""
_TEXTS = (CONTAINER, *[PATH] * 6, ENCRYPTION_SCOPE, ACCOUNT, *(f"{TAGS}:{key}" for key in TAG_KEYS))
_POOLS: dict[str, tuple[str, ...]] = {
    "Equals": (*WORDS, *PATHS, "docs", "acct", "ACCT"),
    "StartsWith": (*PREFIXES, "A/", "Docs/"),
    "Like": (*PATTERNS, "a?b", "?", "??", "docs/?.txt", "a\\*?", "?\\?b", "*\\*b", "?\\*b", "docs/\\\\*", "*\\\\", "\\\\?"),
}


def telling() -> st.SearchStrategy[Condition]:
    """Alternatives of comparisons that hold for some blobs and not for others: of what is drawn at random most holds for all or none."""
    operators = [name for name in OPERATORS if name.startswith("String")]
    operators += [name for name in operators if not name.endswith("IgnoreCase") and OPERATORS[name].relation != "Equals"]
    leaves = st.one_of(st.sampled_from(operators).flatmap(_told), st.sampled_from(operators).flatmap(_told), _flags(), _keys())
    parts = st.one_of(leaves, leaves, leaves.map(Not), st.builds(lambda one, other: And((one, other)), leaves, leaves))
    return st.one_of(parts, st.lists(parts, min_size=2, max_size=3).map(lambda several: Or(tuple(several))))


def _told(operator: str) -> st.SearchStrategy[Condition]:
    meaning = OPERATORS[operator]
    literals = st.sampled_from(_POOLS[meaning.relation])
    values = (st.one_of(literals, st.sampled_from(CASE_TRAPS)) if meaning.ignore_case else literals).map(Constant)
    sets = st.lists(values, min_size=1, max_size=3).map(lambda items: Values(tuple(items)))
    asked = st.sampled_from(_TEXTS).map(named)
    plain = st.builds(lambda left, right: Comparison(left=left, operator=operator, right=right), asked, values)
    quantified = st.builds(
        lambda left, right, quantifier: Comparison(left=left, operator=operator, right=right, quantifier=quantifier),
        asked,
        sets,
        st.sampled_from(get_args(Quantifier)),
    )
    principal = st.sampled_from(NAMES["Principal"]).map(lambda name: named(name, source="Principal"))
    personal = st.builds(lambda left, right: Comparison(left=left, operator=operator, right=right), asked, principal)
    swapped = st.builds(lambda left, right: Comparison(left=left, operator=operator, right=right), values, asked)
    about_paths = plain.map(lambda comparison: replace(comparison, left=named(PATH)))
    return st.one_of(plain, about_paths, about_paths, quantified, quantified, swapped, personal)


def _flags() -> st.SearchStrategy[Condition]:
    asked = st.sampled_from([CURRENT_VERSION, HIERARCHICAL, ENCRYPTION_SCOPE, f"{TAGS}:Project"]).map(named)
    says = st.builds(lambda left, right: Comparison(left=left, operator="BoolEquals", right=right), asked, st.booleans().map(Constant))
    return st.one_of(says, asked.map(Exists))


def _keys() -> st.SearchStrategy[Condition]:
    operators = [name for name in OPERATORS if name.startswith("String") and OPERATORS[name].relation == "Equals"]
    values = st.lists(st.sampled_from(TAG_KEYS).map(Constant), min_size=1, max_size=4).map(lambda items: Values(tuple(items)))
    return st.builds(
        lambda operator, right, quantifier: Comparison(left=KEYS, operator=operator, right=right, quantifier=quantifier),
        st.sampled_from(operators),
        values,
        st.sampled_from(get_args(Quantifier)),
    )


def named(name: str, *, source: SourceName = "Resource") -> Attribute:
    """The attribute with this name, which is that of a tag where it begins as one."""
    path, _, key = name.partition(":")
    return Attribute(source=source, path=path, key=key, case_sensitive=path == TAGS)


KEYS = Attribute(source="Resource", path=TAGS, keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A condition as a query would use it."""

    condition: Condition
    context: Context
    wanted: bool
    filter: Filter
    exact: bool

    @classmethod
    def of(cls, condition: Condition, context: Context, *, wanted: bool = True) -> Translation:
        """Reduced for the context, and translated."""
        said, exact = to_filter(reduce(condition, context, now=None), wanted=wanted)
        return cls(condition=condition, context=context, wanted=wanted, filter=said, exact=exact)

    def admitted(self, blobs: Iterable[AccessAttributes]) -> set[int]:
        """The positions of the blobs of which the condition, as it was written, has the wanted truth."""
        return {number for number, blob in enumerate(blobs) if truth(self.condition, self.context, blob) is self.wanted}

    def matched(self, columns: Iterable[AccessColumns]) -> set[int]:
        """The positions of the columns that the filter is true of."""
        return {number for number, one in enumerate(columns) if matches(self.filter, one)}

    def check(self, admitted: set[int], found: set[int]) -> None:
        """Nothing that should be found is lost, and an exact filter finds nothing else."""
        assert found >= admitted, ("lost", admitted - found, self)
        assert not self.exact or found == admitted, ("leaked", found - admitted, self)


def truth(condition: Condition, context: Context, blob: AccessAttributes) -> Truth:
    """Plain evaluation, for this blob in place of the context's."""
    resource, tags = resource_of(blob)
    return evaluate(condition, replace(context, resource=resource, tags=tags))


def blobs(number: int, seed: int = 0) -> Sequence[AccessAttributes]:
    """Blobs of every kind that conditions tell apart: untagged, differing in case, hostile, old, encrypted, on hierarchical accounts."""
    dice = random.Random(seed)
    return [_blob(dice) for _ in range(number)]


def _blob(dice: random.Random) -> AccessAttributes:
    kind = dice.randrange(8)
    keys = dice.sample(TAG_KEYS, dice.randrange(1, 4)) if kind > 2 else []
    return AccessAttributes(
        account=dice.choice(["acct", "other", "a", "red"]),
        container=dice.choice(["docs", "red", "a", "ab"]),
        path=dice.choice([*PATHS, *PATHS, *HOSTILE_PATHS, *CASE_TRAPS, *(word for word in WORDS if word)]),
        tags={key: dice.choice([*WORDS, "aaaaaaaa-0000-0000-0000-000000000001", "2022-06-01T00:00:00Z"]) for key in keys},
        metadata={"project": "red"} if kind == 4 else {},
        is_current_version=dice.random() < 0.7,
        encryption_scope=dice.choice([None, None, "a", "Red", "red", ""]),
        acl="user::r--" if kind == 0 else None,
    )
