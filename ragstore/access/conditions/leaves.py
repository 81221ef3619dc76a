"""One comparison of an attribute of the blob with literals in, a filter and whether it is exact out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ragstore import patterns
from ragstore.access.conditions import evaluation
from ragstore.access.conditions.fields import Field, FlagField, KeysField, TextField
from ragstore.access.conditions.tree import Comparison, Scalar
from ragstore.access.conditions.values import OPERATORS, Operator, compare, fold
from ragstore.filters import ALWAYS, NEVER, AnyOf, Filter, Like, Never, OneOf, all_of, any_of, negate, simplify

Translated = tuple[Filter, bool]
"""True at least where it should be, and whether only there."""

NOWHERE: Final[Translated] = (NEVER, True)

_MOST_WILDCARDS: Final = 64
"""In a pattern that is handed to the store; each costs it time on every row."""
_MOST_PREFIXES: Final = 1_024
"""So many characters of literals are spelled out as the prefixes that they have."""
_MOST_KEYS: Final = 6
"""The subsets of so many tag keys are spelled out: 63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """`field operator literals`, or where `swapped` `literals operator field`."""

    comparison: Comparison
    literals: tuple[Scalar, ...]
    swapped: bool
    wanted: bool
    """Whether the comparison is to be True, or False."""

    @property
    def operator(self) -> Operator:
        """Taken apart."""
        return OPERATORS[self.comparison.operator]

    @property
    def positive(self) -> bool:
        """Whether the relation has to hold for a pair of values, or must not: a negated operator that is to be False asks that it holds."""
        return self.wanted is not self.operator.negated

    def any_of_side(self, side: int) -> bool:
        """Whether one value of the left (0) or right (1) side is enough; an operator without a quantifier has one value on each."""
        words = self.comparison.quantifier or "ForAnyOfAnyValues"
        left, _, right = words.removeprefix("For").removesuffix("Values").partition("Of")
        # That it is false of all is what refutes "any", and the other way round.
        return ((left, right)[side] == "Any") is self.wanted

    @property
    def any_literal(self) -> bool:
        """Whether it is enough that the relation is as it has to be for one of the literals."""
        return self.any_of_side(0 if self.swapped else 1)

    @property
    def any_element(self) -> bool:
        """The same for the values of the field."""
        return self.any_of_side(1 if self.swapped else 0)


def compared(leaf: Leaf, field: Field) -> Translated:
    """True at least of every blob where the comparison has the wanted truth.

    A literal of another type than the operator's makes the comparison unknown for every blob.
    """
    operator = leaf.operator.name
    if any(compare(operator, literal, literal) is None for literal in leaf.literals):
        return NOWHERE
    if leaf.comparison.quantifier is None and len(leaf.literals) != 1:
        return NOWHERE
    match field:
        case FlagField():
            return any_of(said for value, said in field.values.items() if _holds(leaf, value)), True
        case KeysField():
            return _of_keys(leaf, field)
        case TextField():
            return _of_text(leaf, field)


def _holds(leaf: Leaf, value: Scalar) -> bool:
    left, right = (leaf.literals, (value,)) if leaf.swapped else ((value,), leaf.literals)
    return evaluation.compared(leaf.comparison, left, right) is leaf.wanted


def _of_text(leaf: Leaf, field: TextField) -> Translated:
    match leaf.operator.family:
        case "Numeric" | "DateTime":
            return field.present, False
        case "Bool":
            return field.equals([text for text in ("true", "false") if _holds(leaf, text)], ignore_case=True), True
        case "Guid":
            # Of a text that is no GUID the comparison is unknown, and among those that differ from the literal there are such.
            said, _ = _equal(leaf, field, ignore_case=True)
            found = said, leaf.positive
        case "String":
            found = _of_string(leaf, field)
    # To equal something is to be there.
    return found if isinstance(found[0], OneOf | AnyOf) else (all_of((field.present, found[0])), found[1])


def _of_string(leaf: Leaf, field: TextField) -> Translated:
    """Of a text that is there."""
    if leaf.operator.relation == "Equals":
        return _equal(leaf, field, ignore_case=leaf.operator.ignore_case)
    each = _begins if leaf.swapped else _matches
    found = [each(leaf, field, str(literal)) for literal in leaf.literals]
    return some(found) if leaf.any_literal else every(found)


def _equal(leaf: Leaf, field: TextField, *, ignore_case: bool) -> Translated:
    literals = sorted({str(literal) for literal in leaf.literals})
    if leaf.any_literal is leaf.positive:
        return _said(leaf, field.equals(literals, ignore_case=ignore_case))
    each = [_said(leaf, field.equals((literal,), ignore_case=ignore_case)) for literal in literals]
    return some(each) if leaf.any_literal else every(each)


def _begins(leaf: Leaf, field: TextField, literal: str) -> Translated:
    """The literal starts with the field, which then is one of its prefixes, or is like it, which cannot be said."""
    if leaf.operator.relation == "Like" or len(literal) * len(leaf.literals) > _MOST_PREFIXES:
        return ALWAYS, False
    prefixes = [literal[:length] for length in range(len(literal) + 1)]
    return _said(leaf, field.equals(prefixes, ignore_case=leaf.operator.ignore_case))


def _matches(leaf: Leaf, field: TextField, literal: str) -> Translated:
    """The field starts with the literal, or is like it."""
    parts = patterns.segments(literal) if leaf.operator.relation == "Like" else (tuple(literal), ())
    ignore_case = leaf.operator.ignore_case
    if not any(parts) and len(parts) > 1:
        return _said(leaf, ALWAYS)
    if len(parts) == 1 and None not in parts[0]:
        return _said(leaf, field.equals(("".join(map(str, parts[0])),), ignore_case=ignore_case))
    # Whatever matches with case matches without; and whatever matches without does where each character that has a case may be any.
    asked = patterns.without_case(parts) if ignore_case and leaf.positive else parts
    if field.column is None or len(asked) + sum(part.count(None) for part in asked) > _MOST_WILDCARDS:
        return ALWAYS, False
    said, _ = _said(leaf, simplify(Like(field.column, patterns.spelled(asked))))
    return said, not ignore_case or patterns.without_case(parts) == parts


def _said(leaf: Leaf, relation: Filter) -> Translated:
    """The relation, said exactly, or its negation where it must not hold."""
    return (relation if leaf.positive else negate(relation)), True


def _of_keys(leaf: Leaf, field: KeysField) -> Translated:
    """Of a list of at least one key. Which quantifier stands inside the other matters where they differ."""
    order_matters = leaf.swapped and leaf.any_literal is not leaf.any_element
    if leaf.comparison.quantifier is None or leaf.operator.family != "String" or leaf.operator.relation != "Equals" or order_matters:
        return field.present, False
    ignore_case = leaf.operator.ignore_case
    literals = {fold(str(literal)) if ignore_case else str(literal) for literal in leaf.literals}
    if leaf.any_literal is not leaf.positive and len(literals) > 1:
        # No key equals several literals, and every key differs from one of several.
        return NOWHERE if leaf.positive else (field.present, True)
    listed = field.any_in(literals, ignore_case=ignore_case)
    if leaf.any_element is leaf.positive:
        return (listed if leaf.positive else all_of((field.present, negate(listed)))), True
    # Left are: every key is among the literals, and some key is not.
    if ignore_case or len(literals) > _MOST_KEYS:
        return (listed if leaf.positive else field.present), False
    subsets = (subset for size in range(1, len(literals) + 1) for subset in combinations(sorted(literals), size))
    within = field.exactly(subsets)
    return (within if leaf.positive else all_of((field.present, negate(within)))), True


def every(found: Iterable[Translated]) -> Translated:
    """Exact where every part is, and where nothing is left."""
    filters, exact = zip(*found, strict=True)
    joined = all_of(filters)
    return joined, all(exact) or isinstance(joined, Never)


def some(found: Iterable[Translated]) -> Translated:
    """Exact where every part is, and where one is exactly everything."""
    parts = list(found)
    return any_of(said for said, _ in parts), all(exact for _, exact in parts) or (ALWAYS, True) in parts
