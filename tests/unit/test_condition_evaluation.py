"""What operators, quantifiers and missing attributes come to, with vectors of our own and those of the reference."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from ragstore.access.conditions.cases import run_cases
from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.resource import resource_of
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.tree import PATH, TAGS, AttributeValue, Context, Scalar, Truth
from ragstore.access.conditions.values import OPERATORS, compare, fold, ticks, ticks_at
from ragstore.models import AccessAttributes

QUANTIFIERS = ("ForAnyOfAnyValues", "ForAllOfAnyValues", "ForAnyOfAllValues", "ForAllOfAllValues")
GUID = "aaaaaaaa-0000-0000-0000-000000000001"
OTHER_GUID = "bbbbbbbb-0000-0000-0000-000000000002"
NOON = "2024-05-01T12:00:00Z"
TICK_LATER = "2024-05-01T12:00:00.0000001Z"

# operator: a value for which it is true, one for which it is false, the literal, a value of the wrong type
POSITIVE: dict[str, tuple[Scalar, Scalar, str, Scalar]] = {
    "StringEquals": ("a", "A", "'a'", 5),
    "StringEqualsIgnoreCase": ("A", "b", "'a'", True),
    "StringStartsWith": ("docs/x", "Docs/x", "'docs/'", 5),
    "StringStartsWithIgnoreCase": ("DOCS/x", "doc/x", "'docs/'", 5),
    "StringLike": ("docs/x/y", "Docs/x", "'docs/*'", 5),
    "StringLikeIgnoreCase": ("DOCS/x", "doc/x", "'docs/?'", 5),
    "NumericEquals": ("10", 9, "10", "ten"),
    "NumericLessThan": (9, "10", "10", "9.5"),
    "NumericLessThanEquals": ("10", 11, "10", ""),
    "NumericGreaterThan": ("10", "9", "9", True),
    "NumericGreaterThanEquals": (9, -9, "9", " 9"),
    "DateTimeEquals": ("2024-05-01T12:00:00.0000000Z", TICK_LATER, f"'{NOON}'", "2024-05-01"),
    "DateTimeLessThan": (NOON, TICK_LATER, f"'{TICK_LATER}'", "noon"),
    "DateTimeLessThanEquals": (NOON, TICK_LATER, f"'{NOON}'", 5),
    "DateTimeGreaterThan": (TICK_LATER, NOON, f"'{NOON}'", "2024-02-30T12:00:00Z"),
    "DateTimeGreaterThanEquals": (NOON, "2024-05-01T11:59:59.9999999Z", f"'{NOON}'", "2024-05-01T24:00:00Z"),
    "BoolEquals": ("True", False, "true", "yes"),
    "GuidEquals": (GUID.upper(), OTHER_GUID, f"'{GUID}'", "a"),
}
NEGATIVE = {
    name: (false, true, literal, wrong)
    for positive, (true, false, literal, wrong) in POSITIVE.items()
    for name in (positive.replace("String", "StringNot", 1), positive.replace("Equals", "NotEquals", 1))
    if name in OPERATORS and name not in POSITIVE
}
VECTORS = {**POSITIVE, **NEGATIVE}
QUANTIFIED = [(name, quantifier) for name in VECTORS if not name.startswith(("Bool", "DateTime")) for quantifier in QUANTIFIERS]


def _truth(text: str, **attributes: AttributeValue) -> Truth:
    return evaluate(parse(text), Context(resource=attributes))


def test_there_is_a_vector_for_every_operator() -> None:
    assert VECTORS.keys() == OPERATORS.keys()


@pytest.mark.parametrize("operator", VECTORS)
def test_an_operator_alone_is_true_false_or_unknown(operator: str) -> None:
    true, false, literal, wrong = VECTORS[operator]
    text = f"@Resource[x] {operator} {literal}"
    assert _truth(text, x=true) is True
    assert _truth(text, x=(true,)) is True
    assert _truth(text, x=false) is False
    for unknown in (wrong, (), (true, true), (true, false)):
        assert _truth(text, x=unknown) is None
        assert _truth(f"NOT ({text})", x=unknown) is None
    assert _truth(text) is None
    assert _truth(f"NOT ({text})") is None
    assert _truth(f"NOT ({text})", x=true) is False
    assert _truth(f"NOT ({text})", x=false) is True


@pytest.mark.parametrize(("operator", "quantifier"), QUANTIFIED)
def test_a_quantified_operator_is_true_false_or_unknown(operator: str, quantifier: str) -> None:
    true, false, literal, wrong = VECTORS[operator]
    text = f"@Resource[x] {quantifier}:{operator} {{{literal}}}"
    assert _truth(text, x=true) is True
    assert _truth(text, x=(true, true)) is True
    assert _truth(text, x=false) is False
    assert _truth(text, x=(false, false)) is False
    assert _truth(text, x=(true, false)) is quantifier.startswith("ForAny")
    for unknown in (wrong, (true, wrong), (wrong, false), ()):
        assert _truth(text, x=unknown) is None
        assert _truth(f"NOT ({text})", x=unknown) is None
    assert _truth(text) is None
    assert _truth(f"NOT ({text})") is None


@pytest.mark.parametrize("quantifier", QUANTIFIERS)
@pytest.mark.parametrize("operator", ["StringEquals", "StringNotEquals"])
def test_a_quantified_comparison_of_attributes_is_unknown_where_either_side_is_missing_or_empty(operator: str, quantifier: str) -> None:
    text = f"@Resource[x] {quantifier}:{operator} @Resource[y]"
    assert _truth(text) is None
    for present, absent in (("x", "y"), ("y", "x")):
        assert _truth(text, **{present: "a"}) is None
        empty: dict[str, AttributeValue] = {present: "a", absent: ()}
        assert _truth(text, **empty) is None


@pytest.mark.parametrize(
    ("left", "right"), list(itertools.product([("a",), ("a", "b"), ("b", "c"), ("c", "d")], [("a",), ("a", "b"), ("c", "d")]))
)
def test_quantifiers_are_what_their_names_say(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    expected = {
        "ForAnyOfAnyValues": any(any(one == other for other in right) for one in left),
        "ForAllOfAnyValues": all(any(one == other for other in right) for one in left),
        "ForAnyOfAllValues": any(all(one == other for other in right) for one in left),
        "ForAllOfAllValues": all(all(one == other for other in right) for one in left),
    }
    found = {name: _truth(f"@Resource[x] {name}:StringEquals @Resource[y]", x=left, y=right) for name in QUANTIFIERS}
    assert found == expected


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("{10, 20} ForAnyOfAllValues:NumericLessThan {15, 18}", {}, True),
        ("{10, 20} ForAllOfAllValues:NumericLessThan {25, 30}", {}, True),
        ("{10, 20} ForAllOfAllValues:NumericLessThan {5, 15, 18}", {}, False),
        ("@Resource[x] ForAnyOfAnyValues:StringNotEquals {'a','b'}", {"x": "a"}, True),  # the trap: it differs from b
        ("@Resource[x] ForAllOfAllValues:StringNotEquals {'a','b'}", {"x": "a"}, False),
        (r"@Resource[x] StringLike 'a\*c'", {"x": "a*c"}, True),
        (r"@Resource[x] StringLike 'a\*c'", {"x": "abc"}, False),
        (r"@Resource[x] StringLike 'a\\*'", {"x": "a\\b"}, True),
        (r"@Resource[x] StringLike 'a\b'", {"x": "a\\b"}, True),
        ("@Resource[x] StringLike 'a?c'", {"x": "ac"}, False),
        ("@Resource[x] StringLike 'a*'", {"x": "a\nb"}, True),
        ("@Resource[x] StringLike '*'", {"x": ""}, True),
        ("@Resource[x] StringLike ''", {"x": ""}, True),
        ("@Resource[x] StringLike 'a%'", {"x": "ab"}, False),
        ("@Resource[x] StringStartsWith ''", {"x": "anything"}, True),
        ("'docs/a' StringStartsWith @Resource[x]", {"x": "docs/"}, True),
        ("@Resource[x] StringEquals ''", {"x": ""}, True),
        ("@Resource[x] StringEqualsIgnoreCase 'k'", {"x": "\u212a"}, False),
        ("@Resource[x] StringEqualsIgnoreCase 'strasse'", {"x": "straße"}, False),
        ("@Resource[x] StringEqualsIgnoreCase 'i'", {"x": "ı"}, False),
        ("@Resource[x] StringEqualsIgnoreCase 'É'", {"x": "é"}, True),
        ("@Resource[x] StringEquals 'é'", {"x": "e\u0301"}, False),
        ("@Resource[x] StringEquals @Resource[y]", {}, None),
        ("NOT Exists @Resource[x] OR @Resource[x] StringNotEquals 'a'", {}, True),
        ("@Resource[x] StringEquals 'a' OR @Resource[y] BoolEquals true", {"y": True}, True),
        ("@Resource[x] StringEquals 'a' AND @Resource[y] BoolEquals true", {"y": True}, None),
        ("@Resource[x] StringEquals 'a' AND @Resource[y] BoolEquals true", {"y": False}, False),
        ("Exists @Resource[x]", {"x": ""}, True),
        ("Exists @Resource[x]", {"x": ()}, True),
        ("Exists @Resource[x]", {}, False),
    ],
)
def test_a_condition_comes_to_this(text: str, attributes: dict[str, AttributeValue], expected: Truth) -> None:
    assert _truth(text, **attributes) is expected


@pytest.mark.parametrize(("left", "right"), list(itertools.product((True, False, None), repeat=2)))
def test_and_or_and_not_are_those_of_kleene(left: Truth, right: Truth) -> None:
    attributes: dict[str, AttributeValue] = {name: value for name, value in (("x", left), ("y", right)) if value is not None}
    one, other = "@Resource[x] BoolEquals true", "@Resource[y] BoolEquals true"
    order: list[Truth] = [False, None, True]
    assert _truth(f"{one} AND {other}", **attributes) is min(left, right, key=order.index)
    assert _truth(f"{one} OR {other}", **attributes) is max(left, right, key=order.index)
    assert _truth(f"NOT ({one})", **attributes) is order[2 - order.index(left)]


def test_names_of_attributes_have_no_case_and_keys_of_tags_have() -> None:
    context = Context(resource={"Name1": "a"}, tags={"Project": "x"}, principal={"A/Id:Set_Name": "b"})
    assert evaluate(parse("@Resource[nAME1] StringEquals 'a' AND @Principal[a/ID:set_NAME] StringEquals 'b'"), context) is True
    assert evaluate(parse(f"Exists @Resource[{TAGS.upper()}:Project<$KEY_CASE_SENSITIVE$>]"), context) is True
    assert evaluate(parse(f"Exists @Resource[{TAGS}:project<$key_case_sensitive$>]"), context) is False


def test_two_names_that_differ_in_case_make_every_comparison_unknown_and_do_not_count_as_missing() -> None:
    context = Context(principal={"p": "a", "P": "b"})
    for value in ("a", "b"):
        assert evaluate(parse(f"@Principal[p] StringEquals '{value}'"), context) is None
    assert evaluate(parse("NOT Exists @Principal[p]"), context) is False


def test_the_list_of_tag_keys_is_missing_where_there_are_no_tags() -> None:
    text = f"@Resource[{TAGS}&$keys$&] ForAllOfAnyValues:StringEquals {{'a', 'b'}}"
    assert evaluate(parse(text), Context(tags={"a": "", "b": ""})) is True
    assert evaluate(parse(text), Context(tags={"a": "", "c": ""})) is False
    assert evaluate(parse(text), Context()) is None
    assert evaluate(parse(f"Exists @Resource[{TAGS}&$keys$&]"), Context()) is False


def test_tags_of_the_request_are_not_those_of_the_resource() -> None:
    text = f"@Request[{TAGS}:a<$key_case_sensitive$>] StringEquals 'x'"
    assert evaluate(parse(text), Context(tags={"a": "x"})) is None
    assert evaluate(parse(text), Context(request_tags={"a": "x"})) is True


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a/b/read", True), ("A/B/READ", True), ("a/*", True), ("*/read", True), ("*", True), ("a/?/read", False), ("a", False), ("", False)],
)
def test_a_pattern_of_actions_crosses_slashes_and_has_no_case(pattern: str, *, expected: bool) -> None:
    assert evaluate(parse(f"ActionMatches{{'{pattern}'}}"), Context(action="a/b/Read")) is expected


def test_a_retrieval_is_no_listing_and_is_what_deprecated_guards_ask_for() -> None:
    assert evaluate(parse("SubOperationMatches{'blob.list'}"), Context()) is False
    assert evaluate(parse("SubOperationMatches{'blob.read.withtagconditions'}"), Context()) is True
    assert (
        evaluate(parse("@Request[SUBOPERATION] ForAnyOfAnyValues:StringEqualsIgnoreCase {'blob.read.withtagconditions'}"), Context())
        is True
    )
    assert evaluate(parse("SubOperationMatches{'*'} OR Exists @Request[subOperation]"), Context(suboperations=frozenset())) is False


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2024-05-01T12:00:00Z", True),
        ("2024-05-01T12:00:00.Z", True),
        ("2024-05-01T12:00:00.1234567Z", True),
        ("2024-05-01T12:00:00.12345678Z", False),
        ("2024-05-01T12:00:00", False),
        ("2024-05-01T12:00:00+00:00", False),
        ("2024-05-01T12:00:60Z", False),
        ("2023-02-29T12:00:00Z", False),
        ("0000-01-01T00:00:00Z", False),
        ("٢٠٢٤-05-01T12:00:00Z", False),
        (" 2024-05-01T12:00:00Z", False),
    ],
)
def test_an_instant_has_the_documented_form(text: str, *, valid: bool) -> None:
    assert (ticks(text) is not None) is valid


def test_ticks_count_from_the_year_one() -> None:
    assert ticks("0001-01-01T00:00:00.0000001Z") == 1
    assert ticks("1970-01-01T00:00:00Z") == ticks_at(99)


def test_folding_is_one_to_one() -> None:
    assert fold("aß\u212aıſᾳǅ") == "Aß\u212aıſᾼǄ"


def test_a_number_beyond_64_bits_is_none() -> None:
    assert compare("NumericLessThan", "9223372036854775808", 5) is None
    assert compare("NumericGreaterThan", "9223372036854775807", 5) is True


def test_a_hostile_pattern_is_matched_quickly() -> None:
    assert compare("StringLike", "a" * 1024, "*a?" * 300 + "b") is False


def test_a_blob_is_a_resource_with_its_tags() -> None:
    blob = AccessAttributes(account="acct", container="docs", path="a/b", tags={"k": "v"}, metadata={"m": "n"}, encryption_scope="s")
    resource, tags = resource_of(blob)
    context = Context(resource=resource, tags=tags)
    assert tags == {"k": "v"}
    assert evaluate(parse(f"@Resource[{PATH}] StringEquals 'a/b'"), context) is True
    assert evaluate(parse("Exists @Resource[Microsoft.Storage/storageAccounts/encryptionScopes:name]"), context) is True
    assert evaluate(parse("Exists @Resource[Microsoft.Storage/storageAccounts:isHnsEnabled]"), context) is False
    assert evaluate(parse(f"Exists @Resource[{TAGS.replace('tags', 'metadata')}:m]"), context) is False


def test_a_blob_with_an_acl_is_on_a_hierarchical_account_and_has_no_tags() -> None:
    resource, tags = resource_of(AccessAttributes(account="acct", container="docs", path="a", tags={"k": "v"}, acl="user::rwx"))
    assert tags == {}
    assert evaluate(parse("@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled] BoolEquals true"), Context(resource=resource)) is True


def test_the_vectors_of_the_reference_come_out_as_written(shared: Path) -> None:
    entries = json.loads((shared / "data" / "access" / "vectors.json").read_text())
    assert len(entries) >= 84
    assert run_cases(entries) == []
