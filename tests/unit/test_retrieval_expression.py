from __future__ import annotations

import pytest

from ragstore.errors import ConfigError
from ragstore.filters import AnyOf, Not, OneOf, StartsWith, all_of, any_of
from ragstore.models import AccessAttributes
from ragstore.retrieval import evaluate, parse, to_filter

BLOB = AccessAttributes(
    account="local",
    container="docs",
    path="reports/q3.md",
    tags={"department": "hr", "cost center": "7", "Empty": ""},
    metadata={"level": "3", "note": "it's"},
)


@pytest.mark.parametrize(
    "text",
    [
        "tag.department = 'hr'",
        "TAG.department = 'hr' AND CONTAINER = 'docs'",
        "path starts with 'reports/'",
        "media_type in ('text/plain', 'text/markdown')",
        "tag['cost center'] = '7'",
        "tag['cost center'] > 6.5",
        "metadata.LEVEL >= 3",
        "metadata.level = 3.0",
        "metadata.level != 4",
        "metadata.level in ('x', 3)",
        "metadata.note = 'it''s'",
        "tag.Empty exists and tag.Empty = ''",
        "not tag.owner exists",
        "tag.department not in ('it', 'ops')",
        "tag.owner = 'x' or account = 'local'",
        "account = 'x' and path = 'y' or container = 'docs'",
        "not (tag.department = 'it') and (account = 'x' or container = 'docs')",
        "tag.department='hr'and container='docs'",
        "\n\tcontainer\n=\n'docs'\n",
    ],
)
def test_true_of_the_blob(text: str) -> None:
    assert evaluate(parse(text), BLOB, media_type="text/markdown")


@pytest.mark.parametrize(
    "text",
    [
        "tag.Department = 'hr'",
        "tag.department = 'HR'",
        "tag.owner = 'ann'",
        "tag.owner != 'ann'",
        "not tag.owner = 'ann'",
        "not (tag.owner in ('ann'))",
        "tag.owner not in ('ann')",
        "tag.owner starts with ''",
        "tag.owner < 3",
        "not tag.owner < 3",
        "tag.department < 3",
        "not tag.department < 3",
        "tag.department = 3",
        "tag.department != 3",
        "metadata.level > 3",
        "metadata.level = '3.0'",
        "path starts with 'q3'",
        "path = 'reports/%'",
        "path = '*'",
        "container exists and account = 'docs'",
    ],
)
def test_not_true_of_the_blob(text: str) -> None:
    assert not evaluate(parse(text), BLOB, media_type="text/markdown")


def test_the_filter_of_a_negation_asks_for_presence() -> None:
    key, value = frozenset({"t\x1fk"}), frozenset({"t\x1fk\x1fa"})
    assert to_filter(parse("tag.k != 'a'")) == (all_of((AnyOf("label_keys", key), Not(AnyOf("labels", value)))), True)


def test_negations_are_pushed_to_the_leaves() -> None:
    found, exact = to_filter(parse("not (container = 'a' and path starts with 'b/')"))
    assert found == any_of((Not(OneOf("container", frozenset({"a"}))), Not(StartsWith("path", "b/"))))
    assert exact


def test_a_negated_choice_becomes_a_conjunction() -> None:
    found, _ = to_filter(parse("not (container = 'a' or container = 'b')"))
    assert found == all_of((Not(OneOf("container", frozenset({"a"}))), Not(OneOf("container", frozenset({"b"})))))


@pytest.mark.parametrize("text", ["metadata.level >= 3", "not metadata.level >= 3", "metadata.level starts with 'x'"])
def test_what_a_store_cannot_compare_becomes_presence(text: str) -> None:
    assert to_filter(parse(text)) == (AnyOf("label_keys", frozenset({"m\x1flevel"})), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an attribute at the end"),
        ("   ", "expected an attribute at the end"),
        ("tag.department = ", "expected a value at the end"),
        ("tag.department == 'hr'", "expected a value"),
        ('tag.department = "hr"', "single quotes"),
        ("tag.department = \u2018hr\u2019", "single quotes"),
        ("tag.department = hr", "single quotes"),
        ("tag.department = 'hr", "does not end"),
        ("tag = 'hr'", "name the key"),
        ("tag.'x' = 'hr'", r"tag\['my key'\]"),
        ("department = 'hr'", "expected an attribute"),
        ("path like 'x'", "expected a comparison"),
        ("path starts 'x'", "expected 'with'"),
        ("path starts with 3", "single quotes"),
        ("path in ()", "expected a value"),
        ("path in ('a' 'b')", "separate the values"),
        ("metadata.level >= '3'", "without quotes"),
        ("metadata.level >= 1e3", "malformed number"),
        ("metadata.level >= .5", "expected a number"),
        ("(path = 'a'", "close the parenthesis"),
        ("path = 'a')", "'and', 'or' or the end"),
        ("path = 'a' path = 'b'", "'and', 'or' or the end"),
        ("path = 'a' && path = 'b'", "unexpected '&'"),
        ("tag.owner not exists", "not tag.owner exists"),
        ("path = 'a\0' and \0", r"unexpected '\\x00'"),
    ],
)
def test_an_error_says_where_and_how_to_mend_it(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_an_error_is_one_line_that_shows_the_place() -> None:
    with pytest.raises(ConfigError, match="at character 222, before >>~ 'b' or\u00b7path") as raised:
        parse("path = 'a' and " + " " * 200 + "tag.k ~ 'b' or\npath = '" + "x" * 100 + "'")
    assert str(raised.value).isprintable()
    assert "...<<" in str(raised.value)


def test_an_error_at_the_end_says_so() -> None:
    with pytest.raises(ConfigError, match="expected a value at the end: text stands in single quotes"):
        parse("path =")


@pytest.mark.parametrize("text", ["path = '" + "x" * 10_000 + "'", "\N{PILE OF POO}" * 3000])
def test_a_filter_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="longer than 8192 bytes"):
        parse(text)


def test_a_number_of_thousands_of_digits_is_compared() -> None:
    blob = AccessAttributes(account="a", container="c", path="p", tags={"n": "9" * 5000})
    assert evaluate(parse(f"tag.n > {'9' * 4999}"), blob, media_type="")
