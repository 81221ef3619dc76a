"""What a folded condition becomes as a filter, and which of them say all that the condition does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ragstore.access.conditions.reduction import next_change, reduce
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.translation import to_filter
from ragstore.access.conditions.tree import PATH, TAGS, And, Context, Known, Or
from ragstore.access.conditions.values import ticks
from ragstore.access.labels import azure_columns, columns_of
from ragstore.contracts import PutRows, VectorQuery
from ragstore.filters import ALWAYS, NEVER, AnyOf, Filter, Like, OneOf, StartsWith, matches
from ragstore.models import AccessAttributes
from ragstore.testing.rows import DIMENSIONS, chunk, row, vector
from ragstore_lancedb import LanceDBStore
from ragstore_lancedb.filters import where

CONTAINER = "@Resource[Microsoft.Storage/storageAccounts/blobServices/containers:name]"
ACCOUNT = "@Resource[Microsoft.Storage/storageAccounts:name]"
SCOPE = "@Resource[Microsoft.Storage/storageAccounts/encryptionScopes:name]"
CURRENT = f"@Resource[{PATH.replace(':path', ':isCurrentVersion')}]"
HIERARCHICAL = "@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled]"
BLOB_PATH = f"@Resource[{PATH}]"
TAG = f"@Resource[{TAGS}:Project<$key_case_sensitive$>]"
KEYS = f"@Resource[{TAGS}&$keys$&]"
LEVEL = "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Set_Level]"
NOW = ticks("2026-12-01T00:00:00Z")


def translated(text: str, context: Context | None = None, *, wanted: bool = True) -> tuple[Filter, bool]:
    return to_filter(reduce(parse(text), context or Context(), now=NOW), wanted=wanted)


def blob(path: str = "docs/a.md", **others: object) -> AccessAttributes:
    return AccessAttributes(account="acct", container="docs", path=path, **others)  # type: ignore[arg-type]  # as the test gives them


@pytest.mark.parametrize(
    "text",
    [
        f"{TAG} StringEquals 'a'",
        f"{TAG} StringEqualsIgnoreCase 'a'",
        f"{TAG} StringNotEquals 'a'",
        f"{TAG} ForAnyOfAnyValues:StringEquals {{'a', 'b'}}",
        f"{TAG} ForAllOfAllValues:StringNotEqualsIgnoreCase {{'a', 'b'}}",
        f"{TAG} StringLike 'a'",
        f"{TAG} BoolEquals true",
        f"Exists {TAG}",
        f"NOT Exists {TAG}",
        f"{CONTAINER} StringEqualsIgnoreCase 'DOCS'",
        f"{CONTAINER} ForAnyOfAnyValues:StringEquals {{'docs', 'red'}}",
        f"{CONTAINER} StringLike 'd*'",
        f"{ACCOUNT} StringNotEquals 'acct'",
        f"{BLOB_PATH} StringEqualsIgnoreCase 'Docs/a.md'",
        f"{BLOB_PATH} StringStartsWith 'docs/'",
        f"{BLOB_PATH} StringNotStartsWith 'docs/'",
        f"{BLOB_PATH} StringLike '*/?.m*'",
        f"{BLOB_PATH} ForAnyOfAnyValues:StringLike {{'a/*', '*.md'}}",
        f"{BLOB_PATH} StringLikeIgnoreCase '2024/*'",
        f"'docs/a.md' StringStartsWith {BLOB_PATH}",
        f"{KEYS} ForAnyOfAnyValues:StringEquals {{'Project'}}",
        f"{KEYS} ForAnyOfAnyValues:StringEqualsIgnoreCase {{'project'}}",
        f"{KEYS} ForAllOfAnyValues:StringEquals {{'Project', 'Program'}}",
        f"{KEYS} ForAllOfAllValues:StringNotEquals {{'Project', 'Program'}}",
        f"{SCOPE} ForAnyOfAnyValues:StringEquals {{'one', 'two'}}",
        f"{SCOPE} StringNotEqualsIgnoreCase 'one'",
        f"NOT Exists {SCOPE}",
        f"{CURRENT} BoolEquals true",
        f"{HIERARCHICAL} BoolNotEquals false",
        f"{TAG} StringEquals 5",
    ],
)
def test_what_says_all_is_marked_exact_either_way(text: str) -> None:
    assert translated(text)[1]
    assert translated(text, wanted=False)[1]


@pytest.mark.parametrize(
    "text",
    [
        f"{TAG} StringStartsWith 'a'",
        f"{TAG} StringLike 'a*'",
        f"{TAG} NumericGreaterThan 5",
        f"{TAG} DateTimeLessThan '2024-01-01T00:00:00Z'",
        f"{TAG} StringEquals {CONTAINER}",
    ],
)
def test_what_cannot_be_said_is_the_presence_of_the_attribute(text: str) -> None:
    present = AnyOf("label_keys", frozenset({"t\x1fProject"}))
    for wanted in (True, False):
        assert translated(text, wanted=wanted) == (present, False)


def test_a_pattern_without_case_is_narrowed_by_the_characters_that_have_none() -> None:
    assert translated(f"{BLOB_PATH} StringLikeIgnoreCase 'ab/2024-*'") == (Like("path", "??/2024-*"), False)
    assert translated(f"{BLOB_PATH} StringStartsWithIgnoreCase '日本/'") == (StartsWith("path", "日本/"), True)


def test_an_attribute_that_blobs_do_not_have_satisfies_neither_polarity() -> None:
    metadata = "@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/metadata:owner]"
    for wanted in (True, False):
        assert translated(f"{metadata} StringEquals 'me'", wanted=wanted) == (NEVER, True)
        assert translated(f"{TAG} StringEquals {LEVEL}", wanted=wanted) == (NEVER, True)
    assert translated(f"NOT Exists {metadata}") == (ALWAYS, True)


def test_unknown_stays_within_an_or_and_never_grants_alone() -> None:
    assert translated(f"{TAG} StringEquals {LEVEL} OR {CONTAINER} StringEquals 'docs'") == (OneOf("container", frozenset({"docs"})), True)
    assert translated(f"{TAG} StringEquals {LEVEL} AND {CONTAINER} StringEquals 'docs'") == (NEVER, True)
    assert translated(f"NOT ({TAG} StringEquals {LEVEL})") == (NEVER, True)


def test_several_values_of_a_principal_become_a_list() -> None:
    asking = Context(principal={LEVEL[len("@Principal[") : -1]: ("high", "low")})
    expected = AnyOf("labels", frozenset({"t\x1fProject\x1fhigh", "t\x1fProject\x1flow"}))
    assert translated(f"{TAG} ForAnyOfAnyValues:StringEquals {LEVEL}", asking) == (expected, True)
    assert translated(f"{TAG} StringEquals {LEVEL}", asking) == (NEVER, True)
    nobody = Context(principal={LEVEL[len("@Principal[") : -1]: ()})
    assert translated(f"{TAG} ForAllOfAllValues:StringNotEquals {LEVEL}", nobody) == (NEVER, True)


def test_a_condition_that_was_not_folded_is_refused() -> None:
    for text in ("ActionMatches{'*'}", f"{TAG} StringEquals {LEVEL}", "Exists @Request[subOperation]"):
        with pytest.raises(ValueError, match="reduce"):
            to_filter(parse(text))


def test_tags_beside_an_acl_are_no_tags() -> None:
    columns = azure_columns(blob(tags={"Project": "a"}, acl="user::r--"), media_type="")
    said, exact = translated(f"NOT Exists {TAG} AND {HIERARCHICAL} BoolEquals true")
    assert exact
    assert matches(said, columns)


def test_columns_hold_what_those_of_other_modes_hold() -> None:
    attributes = blob(tags={"Project": "a"}, metadata={"Owner": "b"}, encryption_scope="s")
    plain, azure = columns_of(attributes, media_type="text/plain"), azure_columns(attributes, media_type="text/plain")
    assert set(plain.labels) < set(azure.labels)
    assert set(plain.label_keys) < set(azure.label_keys)
    assert list(azure.labels) == sorted(set(azure.labels))


@pytest.mark.parametrize("one", ["Project", "project", "a\x1fb", "a", "K", "b"])
@pytest.mark.parametrize("other", ["Project", "project", "a\x1fb", "a", "K", "b"])
def test_labels_of_different_tags_differ(one: str, other: str) -> None:
    def keys(*names: str) -> set[str]:
        return set(azure_columns(blob(tags=dict.fromkeys(names, "x\x1fy")), media_type="").labels)

    assert (keys(one) == keys(other)) is (one == other)
    assert keys(one, other) >= keys(one) | keys(other)


def test_the_next_change_is_the_first_instant_with_another_answer() -> None:
    bound = "2026-12-01T13:00:00.0000000Z"
    moment = ticks(bound)
    assert moment is not None
    for operator in ("DateTimeGreaterThan", "DateTimeLessThan", "DateTimeEquals", "DateTimeGreaterThanEquals"):
        condition = parse(f"@Environment[UtcNow] {operator} '{bound}'")
        now: int | None = moment - 5
        changes = []
        while now is not None:
            now = next_change(condition, now)
            changes.append(now)
        truths = [reduce(condition, Context(), now=moment + offset) for offset in range(-5, 6)]
        flips = {moment + offset - 5 for offset in range(1, 11) if truths[offset] != truths[offset - 1]}
        assert flips <= set(changes) == {moment, moment + 1, None}


def test_what_compares_the_time_with_something_unknown_changes_with_every_tick() -> None:
    assert next_change(parse(f"@Environment[UtcNow] DateTimeLessThan {TAG}"), 7) == 8
    assert next_change(parse(f"{TAG} StringEquals 'a'"), 7) is None


def test_a_given_time_replaces_that_of_the_environment() -> None:
    condition = parse("@Environment[UtcNow] DateTimeGreaterThan '2026-01-01T00:00:00Z'")
    old = Context(environment={"utcnow": "2020-01-01T00:00:00Z"})
    assert reduce(condition, old, now=NOW) == Known(True)  # noqa: FBT003 - the truth
    assert reduce(condition, old, now=None) == Known(False)  # noqa: FBT003 - the truth
    assert reduce(condition, Context(), now=None) == Known(None)


def nested(levels: int) -> str:
    text = f"{TAG} StringEquals 'deep'"
    for number in range(levels):
        text = f"{CONTAINER} {'StringEquals' if number % 2 else 'StringLike'} 'c{number}*' {'OR' if number % 2 else 'AND'} ({text})"
    return text


def wide() -> str:
    return " OR ".join(f"{BLOB_PATH} StringLike '?{number}*'" for number in range(70))


@pytest.mark.parametrize("text", [nested(55), wide(), f"NOT ({nested(54)})"], ids=["deep", "wide", "not"])
def test_a_large_condition_is_searched_for_in_a_real_table(tmp_path: Path, text: str) -> None:
    assert 5_000 < len(text) <= 8_192
    blobs = [blob(tags={"Project": "deep"}), blob("x1.md"), blob("7/7.md", tags={"Project": "b"})]
    columns = [azure_columns(one, media_type="") for one in blobs]
    said, exact = translated(text)
    assert exact

    async def found() -> set[str]:
        store = LanceDBStore(base=tmp_path, collection="large", dimensions=DIMENSIONS)
        await store.apply([PutRows(rows=[row(f"{number}", columns=one) for number, one in enumerate(columns)])])
        result = await store.search(VectorQuery(vector=vector(1)), filter=said, limit=10)
        await store.close()
        return {match.chunk_id for match in result}

    assert asyncio.run(found()) == {chunk(f"{number}") for number, one in enumerate(columns) if matches(said, one)}


def test_what_is_nested_too_deeply_for_stores_is_widened() -> None:
    deep = parse(f"{TAG} StringEquals 'a'")
    for number in range(101):
        other = parse(f"{CONTAINER} {'StringEquals' if number % 2 else 'StringNotEquals'} '{number}'")
        deep = Or((deep, other)) if number % 2 else And((deep, other))
    columns = azure_columns(blob(tags={"Project": "a"}), media_type="")
    for wanted in (True, False):
        said, exact = to_filter(deep, wanted=wanted)
        assert not exact
        assert where(said) is not None
    assert matches(to_filter(deep)[0], columns)


def test_the_documented_conditions_are_said_exactly(shared: Path) -> None:
    """All of Microsoft's examples that the vectors hold: for a read, no more is left of them than stores can say."""
    entries = json.loads((shared / "data/access/vectors.json").read_text(encoding="utf-8"))
    texts = {entry["condition"] for entry in entries if entry["source"] == "doc"}
    assert len(texts) > 10
    assert not [text for text in texts if not translated(text)[1]]
