"""Faults planted into the translation, each caught by the comparison with plain evaluation: the comparison is worth its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ragstore.access import labels
from ragstore.access.conditions import fields, leaves, reduction, translation
from ragstore.access.conditions.fields import FlagField, KeysField, TextField
from ragstore.access.conditions.tree import Condition, Context, Known
from ragstore.access.labels import azure_columns
from ragstore.filters import ALWAYS, NEVER, Filter, Like, StartsWith, negate, simplify
from ragstore.testing.conditions import conditions, contexts
from tests.support.conditions import Translation, blobs, telling

Patch = pytest.MonkeyPatch
BLOBS = blobs(120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A condition, who asks, which truth is wanted, and the blobs of which it has that: as evaluated before any fault was planted."""

    condition: Condition
    context: Context
    wanted: bool
    admitted: set[int]


@pytest.fixture(scope="module")
def cases() -> Sequence[Case]:
    """The same 900 in every run."""
    found: list[Case] = []

    @settings(max_examples=900, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.one_of(telling(), telling(), telling(), conditions("Resource", "Principal")), contexts(), st.booleans())
    def draw(condition: Condition, context: Context, unwanted: bool) -> None:  # noqa: FBT001 - drawn
        admitted = Translation.of(condition, context, wanted=not unwanted).admitted(BLOBS)
        found.append(Case(condition=condition, context=context, wanted=not unwanted, admitted=admitted))

    draw()
    return found


def disagrees(cases: Sequence[Case]) -> bool:
    """Whether a filter loses a blob, or is exact and finds one too many."""
    columns = [azure_columns(blob, media_type="") for blob in BLOBS]
    for case in cases:
        asked = Translation.of(case.condition, case.context, wanted=case.wanted)
        try:
            asked.check(case.admitted, asked.matched(columns))
        except AssertionError:
            return True
    return False


def presence_is_not_asked(patch: Patch) -> None:
    def field_of(attribute: Any) -> Any:
        field = fields.field_of(attribute)
        return replace(field, present=ALWAYS) if isinstance(field, TextField | KeysField | FlagField) else field

    patch.setattr(translation, "field_of", field_of)


def false_is_not_true(patch: Patch) -> None:
    """What is unknown counts as false, and its negation is true."""
    original = leaves.compared

    def compared(leaf: leaves.Leaf, field: fields.Field) -> leaves.Translated:
        if leaf.wanted:
            return original(leaf, field)
        said, exact = original(replace(leaf, wanted=True), field)
        return (negate(said), True) if exact else (ALWAYS, False)

    patch.setattr(translation, "compared", compared)


def never_is_the_fallback(patch: Patch) -> None:
    for name in ("_matches", "_begins"):
        original: Callable[..., leaves.Translated] = getattr(leaves, name)

        def narrowed(*given: Any, original: Callable[..., leaves.Translated] = original) -> leaves.Translated:
            found = original(*given)
            return (NEVER, False) if found == (ALWAYS, False) else found

        patch.setattr(leaves, name, narrowed)


def unknown_is_true(patch: Patch) -> None:
    original = reduction._compared

    def compared(*given: Any) -> Condition:
        found = original(*given)
        return Known(True) if found == Known(None) else found  # noqa: FBT003 - the truth

    patch.setattr(reduction, "_compared", compared)


def a_wrong_type_is_everything(patch: Patch) -> None:
    patch.setattr(leaves, "NOWHERE", (ALWAYS, True))


def prefixes_are_lower_cased(patch: Patch) -> None:
    def simplified(expression: Filter) -> Filter:
        found = simplify(expression)
        return StartsWith(found.column, found.prefix.lower()) if isinstance(found, StartsWith) else found

    patch.setattr(leaves, "simplify", simplified)


def wildcards_are_all_the_same(patch: Patch) -> None:
    patch.setattr(leaves, "Like", lambda column, pattern: Like(column, pattern.replace("?", "*")))


def a_backslash_escapes_nothing(patch: Patch) -> None:
    patch.setattr(leaves, "Like", lambda column, pattern: Like(column, pattern.replace("\\", "")))


def a_superset_is_called_exact(patch: Patch) -> None:
    original = leaves._matches
    patch.setattr(leaves, "_matches", lambda *given: (original(*given)[0], True))


def some_is_every(patch: Patch) -> None:
    patch.setattr(translation, "some", leaves.every)


def every_is_some(patch: Patch) -> None:
    patch.setattr(translation, "every", leaves.some)


def quantifiers_are_the_other_way_round(patch: Patch) -> None:
    patch.setattr(leaves.Leaf, "any_literal", property(lambda leaf: leaf.any_of_side(1 if leaf.swapped else 0)))


def sides_are_swapped(patch: Patch) -> None:
    original = leaves.Leaf
    patch.setattr(translation, "Leaf", lambda **given: original(**{**given, "swapped": False}))


def case_is_folded_as_for_prose(patch: Patch) -> None:
    """The German sharp s is two letters, the Kelvin sign a k."""
    patch.setattr(labels, "fold", str.casefold)


def tag_keys_have_no_case(patch: Patch) -> None:
    for module in (labels, fields):
        original = module.label_key
        patch.setattr(module, "label_key", lambda kind, key, original=original: original(kind, key.lower()))


def columns_keep_no_folded_tags(patch: Patch) -> None:
    patch.setattr(labels, "folded_tag", lambda key, value: f"T\x1f{key}\x1f{value}")


FAULTS: list[Callable[[Patch], None]] = [
    presence_is_not_asked,
    false_is_not_true,
    never_is_the_fallback,
    unknown_is_true,
    a_wrong_type_is_everything,
    prefixes_are_lower_cased,
    wildcards_are_all_the_same,
    a_backslash_escapes_nothing,
    a_superset_is_called_exact,
    some_is_every,
    every_is_some,
    quantifiers_are_the_other_way_round,
    sides_are_swapped,
    case_is_folded_as_for_prose,
    tag_keys_have_no_case,
    columns_keep_no_folded_tags,
]


def test_without_a_fault_nothing_disagrees(cases: Sequence[Case]) -> None:
    assert not disagrees(cases)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(cases: Sequence[Case], plant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert disagrees(cases)
