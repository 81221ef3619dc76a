"""What parses as a condition, how it is printed, and what is refused with which remedy."""

from __future__ import annotations

import pickle

import pytest

from ragstore.access.conditions.printing import to_text
from ragstore.access.conditions.syntax import MAX_BYTES, ConditionError, parse
from ragstore.access.conditions.tree import (
    ActionMatches,
    And,
    Attribute,
    Comparison,
    Constant,
    Exists,
    Known,
    Missing,
    Not,
    Or,
    SubOperationMatches,
    Values,
)
from ragstore.errors import ConfigError

A = Attribute(source="Resource", path="a")
B = Attribute(source="Resource", path="b")
C = Attribute(source="Resource", path="c")
GUID = "aaaaaaaa-0000-0000-0000-000000000001"
TAGS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/tags"

PARSED = [
    ("Exists @Resource[a]", Exists(A)),
    ("exists@RESOURCE[a]", Exists(A)),
    ("(((Exists @Resource[a])))", Exists(A)),
    ("\u00a0Exists\u00a0\n\t@Resource[\u00a0a ]\r\n", Exists(A)),
    ("!Exists @Resource[a]", Not(Exists(A))),
    ("not NOT Exists @Resource[a]", Not(Not(Exists(A)))),
    ("Exists @Resource[a] AND Exists @Resource[b] && Exists @Resource[c]", And((Exists(A), Exists(B), Exists(C)))),
    ("Exists @Resource[a]||Exists @Resource[b] or Exists @Resource[c]", Or((Exists(A), Exists(B), Exists(C)))),
    ("(Exists @Resource[a] AND Exists @Resource[b]) AND Exists @Resource[c]", And((And((Exists(A), Exists(B))), Exists(C)))),
    ("NOT Exists @Resource[a] OR Exists @Resource[b]", Or((Not(Exists(A)), Exists(B)))),
    ("ActionMatches{'x/*'}", ActionMatches("x/*")),
    ("suboperationmatches { 'Blob.List' }", SubOperationMatches("Blob.List")),
    ("@Resource[a]StringEquals'x'", Comparison(left=A, operator="StringEquals", right=Constant("x"))),
    ("@Resource[a] stringnotequalsignorecase 'x'", Comparison(left=A, operator="StringNotEqualsIgnoreCase", right=Constant("x"))),
    ("@Resource[a] StringEquals {'x'}", Comparison(left=A, operator="StringEquals", right=Values((Constant("x"),)))),
    ("@Resource[a] NumericEquals -007", Comparison(left=A, operator="NumericEquals", right=Constant(-7))),
    ("@Resource[a] BoolEquals True", Comparison(left=A, operator="BoolEquals", right=Constant(value=True))),
    ("@Resource[a] StringEquals @Resource[b]", Comparison(left=A, operator="StringEquals", right=B)),
    (
        "{'x', 1} forallofanyvalues : StringEquals @Resource[a]",
        Comparison(left=Values((Constant("x"), Constant(1))), operator="StringEquals", right=A, quantifier="ForAllOfAnyValues"),
    ),
    (
        f"@Resource[a] ForAnyOfAnyValues:GuidEquals {{{GUID}, '{GUID}'}}",
        Comparison(
            left=A, operator="GuidEquals", right=Values((Constant(GUID, bare=True), Constant(GUID))), quantifier="ForAnyOfAnyValues"
        ),
    ),
    (
        f"Exists @Resource[{TAGS}:A b<$key_case_sensitive$>]",
        Exists(Attribute(source="Resource", path=TAGS, key="A b", case_sensitive=True)),
    ),
    (f"Exists @Resource[{TAGS}:a:b=c]", Exists(Attribute(source="Resource", path=TAGS, key="a:b=c"))),
    (f"Exists @Request[{TAGS}&$keys$&]", Exists(Attribute(source="Request", path=TAGS, keys=True))),
    ("Exists @Environment[isPrivateLink]", Exists(Attribute(source="Environment", path="isPrivateLink"))),
]

TEXTS = [
    ("'o''hara'", "o'hara"),
    (r"'o\'hara'", "o'hara"),
    (r"'a\*b\?c\\d\e'", r"a\*b\?c\\d\e"),
    (r"'a\\''''", "a\\''"),
    ("''", ""),
    ("''''", "'"),
    ("'’\"`'", '’"`'),
    ("'a\nb AND (c) {d}'", "a\nb AND (c) {d}"),
]

REFUSED = [
    ("", 0, "write an attribute"),
    ("  \n", 3, "write an attribute"),
    ("()", 1, "write an attribute"),
    ("(Exists @Resource[a]", 20, "the ( at character 1 is not closed"),
    ("Exists @Resource[a])", 19, "this ) closes nothing"),
    ("Exists @Resource[a] Exists @Resource[b]", 20, "write AND or OR"),
    ("Exists @Resource[a] AND", 23, "write an attribute"),
    ("AND Exists @Resource[a]", 0, "write an attribute"),
    ("NOTExists @Resource[a]", 0, "'NOTExists'"),
    ("Exists 'a'", 7, "Exists takes an attribute"),
    ("@Resource[a] StringEquals", 25, "a value to compare with"),
    ("@Resource[a]", 12, "an operator is missing"),
    ("StringEquals 'a'", 0, "write an attribute"),
    ("@Resource[a] StringEqual 'x'", 13, "did you mean StringEquals?"),
    ("@Resource[a] StringIgnoreCaseEquals 'x'", 13, "is no operator"),
    ("@Resource[a] = 'x'", 13, "= is no operator"),
    ("@Resource[a] ForAnyOfAny:StringEquals {'x'}", 13, "did you mean ForAnyOfAnyValues?"),
    ("@Resource[a] ForAnyOfAnyValues StringEquals {'x'}", 31, "ForAnyOfAnyValues:StringEquals"),
    ("@Resource[a] ForAnyOfAnyValues:BoolEquals {true}", 31, "takes no quantifier"),
    ("@Resource[a] ForAnyOfAnyValues:DateTimeEquals {'x'}", 31, "takes no quantifier"),
    ("@Resource[a] StringEquals {'a','b'}", 0, "ForAnyOfAnyValues:StringEquals"),
    ("@Resource[a] ForAnyOfAnyValues:StringEquals {}", 45, "write a value"),
    ("@Resource[a] ForAnyOfAnyValues:StringEquals {'a',}", 49, "write a value"),
    ("@Resource[a] ForAnyOfAnyValues:StringEquals {'a' 'b'}", 49, "the set is not closed"),
    ("@Resource[a] ForAnyOfAnyValues:StringEquals {@Resource[b]}", 45, "write a value"),
    ("@Resorce[a] StringEquals 'x'", 0, "did you mean @Resource?"),
    ("@[a] StringEquals 'x'", 0, "@Environment, @Principal, @Request, @Resource"),
    ("@Resource StringEquals 'x'", 9, "write @Resource[name]"),
    ("@Resource[a StringEquals 'x'", 0, "no closing ]"),
    ("@Resource[a StringEquals 'x' AND Exists @Resource[b]", 25, "close the name with ]"),
    ("@Resource[] StringEquals 'x'", 10, "name is missing"),
    ("@Resource[a:] StringEquals 'x'", 11, "part after :"),
    ("@Resource[a<$key_case_sensitive$>] StringEquals 'x'", 10, "follows the key of a tag"),
    ('@Resource[a] StringEquals "x"', 26, "single quotes"),
    ("@Resource[a] StringEquals ‘x’", 26, "single quotes"),
    ("@Resource[a] StringEquals “x”", 26, "single quotes"),
    ("@Resource[a] StringEquals `x`", 26, "single quotes"),
    ("@Resource[a] StringEquals 'x", 26, "no closing quote"),
    (r"@Resource[a] StringStartsWith 'docs\'", 30, "no closing quote"),
    ("ActionMatches('x')", 13, "ActionMatches{'...'}"),
    ("ActionMatches{'x', 'y'}", 17, "ActionMatches{'...'}"),
    ("SubOperationMatches 'x'", 20, "SubOperationMatches{'...'}"),
    ("@Resource[a] NumericEquals 1.5", 27, "numbers are whole"),
    ("@Resource[a] NumericEquals 1a", 27, "neither a number nor a GUID"),
    ("@Resource[a] NumericEquals 9223372036854775808", 27, "64 bits"),
    (f"@Resource[a] GuidEquals {GUID}", 24, f"write '{GUID}'"),
    ("Exists @Resource[a] & Exists @Resource[b]", 20, "write && or AND"),
    ("Exists @Resource[a] | Exists @Resource[b]", 20, "write || or OR"),
    ("Exists @Resource[a]\u200b", 19, "U+200B"),
]

SHELL_EATEN = [
    (f"@Resource[{TAGS}:Project<$>] StringEquals 'x'", "<$key_case_sensitive$>"),
    (f"@Resource[{TAGS}:Project<>] StringEquals 'x'", "<$key_case_sensitive$>"),
    (f"@Resource[{TAGS}&&] ForAnyOfAnyValues:StringEquals {{'x'}}", "&$keys$&"),
    (f"@Resource[{TAGS}&$&] ForAnyOfAnyValues:StringEquals {{'x'}}", "&$keys$&"),
]


@pytest.mark.parametrize(("text", "expected"), PARSED)
def test_a_condition_becomes_its_tree(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(("text", "expected"), PARSED)
def test_a_tree_is_printed_as_what_it_was_parsed_from(text: str, expected: object) -> None:
    assert parse(to_text(parse(text))) == expected


@pytest.mark.parametrize(("literal", "value"), TEXTS)
def test_quotes_hold_anything_and_backslashes_are_literal(literal: str, value: str) -> None:
    condition = parse(f"@Resource[a] StringEquals {literal}")
    assert condition == Comparison(left=A, operator="StringEquals", right=Constant(value))
    assert parse(to_text(condition)) == condition


@pytest.mark.parametrize(("text", "position", "remedy"), REFUSED)
def test_what_is_no_condition_is_refused_with_its_place_and_a_remedy(text: str, position: int, remedy: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    assert refused.value.position == position
    assert remedy in str(refused.value)
    assert f"character {position + 1} " in str(refused.value)


@pytest.mark.parametrize(("text", "lost"), SHELL_EATEN)
def test_what_a_shell_has_eaten_is_named(text: str, lost: str) -> None:
    with pytest.raises(ConditionError, match="a shell has eaten") as refused:
        parse(text)
    assert lost in str(refused.value)


def test_an_error_of_the_language_is_one_of_the_set_up_and_can_be_pickled() -> None:
    with pytest.raises(ConfigError) as refused:
        parse("Exists")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_and_beside_or_is_refused_with_the_parentheses_to_write() -> None:
    text = "Exists @Resource[a] OR Exists @Resource[b] AND Exists @Resource[c]"
    with pytest.raises(ConditionError) as refused:
        parse(text)
    fix = "Exists @Resource[a] OR (Exists @Resource[b] AND Exists @Resource[c])"
    assert fix in str(refused.value)
    assert refused.value.position == text.index("AND")
    assert parse(fix) == parse(text, mixed="and_first")


def test_and_beside_or_within_parentheses_is_refused_too() -> None:
    with pytest.raises(ConditionError, match="ambiguous"):
        parse("(Exists @Resource[a] && Exists @Resource[b] || Exists @Resource[c]) AND Exists @Resource[a]")


@pytest.mark.parametrize("text", ["Exists @Resource[a]", "@Resource[a] BoolEquals true"])
@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("!(", ")"), ("NOT ", "")])
def test_sixty_levels_parse_and_one_more_is_refused(opening: str, closing: str, text: str) -> None:
    deepest = parse(opening * 60 + text + closing * 60)
    assert parse(to_text(deepest)) == deepest
    with pytest.raises(ConditionError, match="nested deeper than 60"):
        parse(opening * 61 + text + closing * 61)


@pytest.mark.parametrize("text", ["(" * 200, "(" * 4000 + ")" * 4000, "!" * 8000, "NOT(" * 2000])
def test_hostile_nesting_is_an_error_and_no_deep_recursion(text: str) -> None:
    with pytest.raises(ConditionError, match="nested deeper"):
        parse(text)


def test_a_condition_longer_than_azure_allows_is_refused() -> None:
    frame = "@Resource[a] StringEquals ''"
    assert isinstance(parse(frame[:-1] + "x" * (MAX_BYTES - len(frame)) + "'"), Comparison)
    with pytest.raises(ConditionError, match="at most 8192 bytes"):
        parse(frame[:-1] + "é" * ((MAX_BYTES - len(frame)) // 2 + 1) + "'")


def test_what_was_written_with_signs_to_save_room_is_printed_so() -> None:
    text = "&&".join(["!@Resource[a]NumericEquals 1"] * 270)
    condition = parse(text)
    assert len(to_text(condition)) <= len(text) <= MAX_BYTES
    assert parse(to_text(condition)) == condition


def test_what_partial_evaluation_leaves_has_a_text() -> None:
    left = Comparison(left=Missing(), operator="StringEquals", right=Constant("x"))
    assert to_text(Or((Not(Known(None)), left))) == "NOT unknown OR missing StringEquals 'x'"
