from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragstore.access.labels import columns_of
from ragstore.errors import ConfigError
from ragstore.filters import matches
from ragstore.models import AccessAttributes
from ragstore.retrieval import Expression, evaluate, parse, to_filter

HOSTILE = [
    "' OR '1'='1",
    '"',
    "%",
    "\\",
    "$ne",
    "\N{PILE OF POO}",
    "\0",
    "\x1f",
    "\x1e",
    "\ud800",
    "a'b",
    "''",
    "",
    " ",
    "'; drop table x --",
]
VALUES = st.one_of(st.sampled_from("ab2"), st.sampled_from(["A", "ab", "2.0", "-1", "10", "1e3", "NaN", "text/plain", *HOSTILE]))
KEYS = st.one_of(st.sampled_from("ka"), st.sampled_from(["K", "level", "my key", "a\x1fb", *HOSTILE]))
NUMBERS = st.sampled_from(["2", "2.0", "-1", "3.5", "10", "+2"])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


ATTRIBUTES = st.one_of(
    st.sampled_from(["account", "container", "path", "media_type", "tag.k", "metadata.k", "METADATA.Level"]),
    st.builds(lambda kind, key: f"{kind}[{quoted(key)}]", st.sampled_from(["tag", "metadata"]), KEYS),
)
LEAVES = st.one_of(
    st.builds(lambda a, o, v: f"{a} {o} {quoted(v)}", ATTRIBUTES, st.sampled_from(["=", "!=", "starts with"]), VALUES),
    st.builds(lambda a, o, n: f"{a} {o} {n}", ATTRIBUTES, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS),
    st.builds(
        lambda a, o, v, n: f"{a} {o} ({', '.join([*map(quoted, v), *n])})",
        ATTRIBUTES,
        st.sampled_from(["in", "not in", "IN"]),
        st.lists(VALUES, min_size=1, max_size=3),
        st.lists(NUMBERS, max_size=1),
    ),
    st.builds(lambda a: f"{a} exists", ATTRIBUTES),
)
EXACT_LEAVES = st.one_of(
    st.builds(lambda a, o, v: f"{a} {o} {quoted(v)}", ATTRIBUTES, st.sampled_from(["=", "!="]), VALUES),
    st.builds(lambda a, v: f"{a} starts with {quoted(v)}", st.sampled_from(["container", "path"]), VALUES),
    st.builds(lambda a: f"{a} exists", ATTRIBUTES),
)


def combined(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda part: f"not ({part})", inner),
            st.builds(lambda first, word, second: f"({first} {word} {second})", inner, st.sampled_from(["and", "or"]), inner),
            st.builds(lambda first, word, second: f"not ({first} {word} {second})", inner, st.sampled_from(["and", "or"]), inner),
        ),
        max_leaves=6,
    )


EXPRESSIONS = combined(LEAVES)
TAGS = st.dictionaries(KEYS, VALUES, max_size=3)
BLOBS = st.builds(
    lambda account, container, path, tags, metadata: AccessAttributes(
        account=account, container=container, path=path, tags=tags, metadata=metadata
    ),
    VALUES,
    VALUES,
    VALUES,
    TAGS,
    TAGS,
)


# A planted error in the negations is found within 300 examples, and not within 50.
MANY = settings(max_examples=max(300, settings().max_examples))


@MANY
@given(text=EXPRESSIONS, blob=BLOBS, media_type=VALUES)
def test_the_filter_misses_nothing_and_is_exact_where_it_says_so(text: str, blob: AccessAttributes, media_type: str) -> None:
    expression = parse(text)
    found, exact = to_filter(expression)
    admitted = matches(found, columns_of(blob, media_type=media_type))
    wanted = evaluate(expression, blob, media_type=media_type)
    assert admitted or not wanted
    assert not exact or admitted == wanted


@MANY
@given(text=combined(EXACT_LEAVES), blob=BLOBS, media_type=VALUES)
def test_what_a_store_can_compare_is_filtered_exactly(text: str, blob: AccessAttributes, media_type: str) -> None:
    expression = parse(text)
    found, exact = to_filter(expression)
    assert exact or "\ud800" in text
    assert not exact or matches(found, columns_of(blob, media_type=media_type)) == evaluate(expression, blob, media_type=media_type)


@given(text=EXPRESSIONS, blob=BLOBS)
def test_an_expression_and_its_negation_are_never_both_true(text: str, blob: AccessAttributes) -> None:
    assert not (evaluate(parse(text), blob, media_type="") and evaluate(parse(f"not ({text})"), blob, media_type=""))


@given(key=st.text(max_size=20), value=st.text(max_size=200))
def test_any_key_and_value_are_data(key: str, value: str) -> None:
    expression = parse(f"tag[{quoted(key)}] = {quoted(value)} and not path = {quoted(value)}")
    assert evaluate(expression, blob_with(key, value), media_type="")
    assert not evaluate(expression, blob_with(key, value + "x"), media_type="")
    assert not evaluate(expression, blob_with(key + "x", value), media_type="")


def blob_with(key: str, value: str) -> AccessAttributes:
    return AccessAttributes(account="a", container="c", path=f"/{value}", tags={key: value})


WORDS = "( ) ' '' [ ] . , = != < >= and or not in starts with exists tag path x 1 1. - \""
PIECES = st.sampled_from([*WORDS.split(" "), " ", "\n"])


@given(text=st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=40).map("".join), st.lists(PIECES, max_size=40).map(" ".join)))
def test_the_parser_raises_nothing_but_a_configuration_error(text: str) -> None:
    try:
        expression = parse(text)
    except ConfigError as error:
        message = str(error)
        assert message.startswith("filter: ")
        assert message.isprintable(), "one line, which a terminal can show"
    else:
        to_filter(expression)


def test_chains_need_no_depth() -> None:
    expression = parse(" and ".join(["tag.k = 'a'"] * 500))
    assert evaluate(expression, blob_with("k", "a"), media_type="")


def nested(depth: int) -> str:
    return "not (" * (depth // 2) + "path exists" + ")" * (depth // 2)


def test_sixty_levels_are_read_and_more_are_refused() -> None:
    expression: Expression = parse(nested(60))
    assert evaluate(expression, blob_with("k", "a"), media_type="")
    for text in (nested(62), "(" * 4000, "not " * 2000, "(" * 61 + "path exists" + ")" * 61):
        with pytest.raises(ConfigError):
            parse(text)
