"""What every store does with searches: `StoreSuite`, second part."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragstore.contracts import DropDocument, PutRows, Retag, Store, TextQuery, VectorQuery
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, NEVER, And, AnyOf, Filter, Like, Not, OneOf, Or, StartsWith, matches
from ragstore.models import AccessColumns
from ragstore.terms import query_terms, row_terms
from ragstore.testing.rows import DIMENSIONS, access, chunk, listed, row, vector, vector_of
from ragstore.testing.store_writes import MakeStore
from ragstore.testing.strategies import HOSTILE, access_columns, filters

_QUERY = VectorQuery(vector=vector(1))
_NUMBERS = itertools.count()
_INHERITED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors]
"""The suite runs in one class per store, and each example makes a collection of its own."""


async def found(store: Store, filter: Filter, limit: int = 100, query: VectorQuery | TextQuery = _QUERY) -> set[str]:
    """The texts of the rows that a search returns."""
    return {match.text for match in await store.search(query, filter=filter, limit=limit)}


async def check_filters(store: Store, columns: list[AccessColumns], conditions: list[Filter]) -> None:
    """Put a row for each of these columns, and compare what each filter finds with `matches`."""
    await store.apply([PutRows(rows=[row(f"document {number}", text=str(number), columns=one) for number, one in enumerate(columns)])])
    for condition in conditions:
        expected = {str(number) for number, one in enumerate(columns) if matches(condition, one)}
        actual = await found(store, condition)
        assert actual >= expected, condition
        assert actual == expected or not store.capabilities.exact_filters, condition


class StoreSearches:
    """Filters mean what `matches` says and come before the limit; the best come first."""

    async def test_the_nearest_come_first_with_their_exact_cosine(self, store: Store) -> None:
        put = [row(f"document {number}") for number in range(40)]
        await store.apply([PutRows(rows=put)])
        query = vector_of("query")
        result = await store.search(VectorQuery(vector=query), filter=ALWAYS, limit=10)
        cosines = {one.chunk_id: float(one.vector @ query) for one in put}
        assert [match.chunk_id for match in result] == sorted(cosines, key=lambda key: -cosines[key])[:10]
        assert np.allclose([match.score for match in result], [cosines[match.chunk_id] for match in result], atol=1e-5)

    async def test_the_cosine_does_not_depend_on_the_length_of_a_vector(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("long", vector=vector(3, 4) * np.float32(7)), row("short", vector=vector(4, 3))])])
        result = await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=2)
        assert [match.score for match in result] == pytest.approx([0.8, 0.6], abs=1e-5)

    async def test_the_limit_is_filled_however_few_rows_match(self, store: Store) -> None:
        put = [row(f"document {number}", columns=access("x", allowed=("rare",) if number == 123 else ("common",))) for number in range(200)]
        await store.apply([PutRows(rows=put)])
        rare = AnyOf("allowed", frozenset({"rare"}))
        far = VectorQuery(vector=-put[123].vector)
        assert [match.chunk_id for match in await store.search(far, filter=rare, limit=10)] == [put[123].chunk_id]
        assert len(await store.search(far, filter=Not(rare), limit=150)) == 150
        assert len(await store.search(far, filter=ALWAYS, limit=500)) == 200

    async def test_a_limit_of_zero_returns_nothing(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a")])])
        assert await store.search(_QUERY, filter=ALWAYS, limit=0) == []

    async def test_never_returns_nothing(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", columns=access(allowed=("",)))])])
        nothing = frozenset[str]()
        for condition in (
            NEVER,
            And((ALWAYS, NEVER)),
            Or(()),
            OneOf("path", nothing),
            AnyOf("allowed", nothing),
            Not(ALWAYS),
            Not(And(())),
        ):
            assert await found(store, condition) == set()

    async def test_every_kind_of_filter_means_what_the_algebra_says(self, store: Store) -> None:
        columns = [
            AccessColumns(account=account, container="docs", path=path, media_type=kind, allowed=allowed, labels=labels, label_keys=keys)
            for account in ("acc", "other")
            for path in ("a/b.md", "a/c.md", "A/b.md", "日本/語.md")
            for kind in ("", "text/plain")
            for allowed, labels, keys in (((), (), ()), (("g1",), ("t\x1fk\x1fv",), ("t\x1fk",)), (("g1", "g2"), (), ("t\x1fk", "m\x1fz")))
        ]
        g1, path = AnyOf("allowed", frozenset({"g1", "nobody"})), OneOf("path", frozenset({"a/b.md", "日本/語.md"}))
        tagged, prefix = AnyOf("label_keys", frozenset({"t\x1fk"})), StartsWith("path", "a/")
        leaves: list[Filter] = [g1, path, tagged, prefix, StartsWith("path", "日"), OneOf("media_type", frozenset({""}))]
        leaves += [OneOf("account", frozenset({"acc", "other"})), AnyOf("labels", frozenset({"t\x1fk\x1fv"})), StartsWith("container", "")]
        leaves += [Like("path", "?/b*"), Like("path", "*.m?")]
        conditions: list[Filter] = [ALWAYS, NEVER, *leaves, *map(Not, leaves)]
        conditions += [And((one, Not(other))) for one, other in itertools.permutations(leaves[:5], 2)]
        conditions += [Or((one, And((other, Not(one))))) for one, other in itertools.combinations(leaves[:5], 2)]
        conditions += [Not(Or((And((g1, path)), Not(Or((tagged, Not(prefix)))))))]
        await check_filters(store, columns, conditions)

    async def test_a_value_in_a_filter_is_data(self, store: Store) -> None:
        columns = [access(text, allowed=(text, "everyone"), labels=(text,)) for text in HOSTILE]
        conditions: list[Filter] = []
        for text in HOSTILE:
            conditions += [OneOf("path", frozenset({text})), AnyOf("allowed", frozenset({text})), StartsWith("path", text)]
            conditions += [Not(OneOf("path", frozenset({text, "none"}))), Not(AnyOf("labels", frozenset({text})))]
        await check_filters(store, columns, conditions)

    async def test_a_pattern_matches_whole_values_by_characters(self, store: Store) -> None:
        """Line ends, characters outside the basic plane and lone surrogates are one character each; case and escapes count."""
        texts: tuple[str, ...] = (
            "",
            "a",
            "A",
            "ab",
            "a\nb",
            "\n",
            "a\U0001f600b",
            "\ud800",
            "a\udfffb",
            "\U0010ffff",
            "\U0010ffffd800",
            "d800",
            "\0",
            "aXb",
            "a/b",
        )
        texts += (
            "aXb",
            "a/b",
            "a*b",
            "a?b",
            "a\\b",
            "a\\*b",
            "a%b",
            "a_b",
            "a.b",
            "(a|b)",
            "[ab]",
            "a'b",
            "^a$",
            "日本語",
            "e\u0301",
            "abab",
        )
        columns = [access(text) for text in texts]
        conditions: list[Filter] = [Like("path", text) for text in texts]
        wild: tuple[str, ...] = (
            "*",
            "?",
            "??",
            "?????",
            "a*",
            "*b",
            "a?b",
            "a*b",
            "?*",
            "*?*",
            "a\\*b",
            "a\\?b",
            "a\\\\*b",
            "*d800",
            "*d80?",
            "?d800",
            "*ab",
            "**",
            "*\n*",
        )
        wild += ("*ab", "**", "*\n*", "*\U0010ffff*", "*\ud800", "*\U0010ffff", "\\", "*\\", "*'*", "?" * 300, "*a" * 100)
        conditions += [Like("path", pattern) for pattern in wild]
        await check_filters(store, columns, [*conditions, *map(Not, conditions)])

    async def test_hostile_columns_come_back_as_they_were_put(self, store: Store) -> None:
        columns = [AccessColumns(account=text, container=text, path=text, allowed=(text, "")) for text in HOSTILE]
        await store.apply([PutRows(rows=[row(f"document {number}", columns=one) for number, one in enumerate(columns)])])
        stored = [key.access for key in await listed(store.keys())]
        assert {one.path: one for one in stored} == {one.path: one for one in columns}

    async def test_empty_lists_and_empty_texts_are_values_like_others(self, store: Store) -> None:
        """No list is null, an empty one shares nothing with any other, and an empty text in a list is an element."""
        lists: list[tuple[str, ...]] = [(), ("",), ("a",), ("", "a"), ("b", "b"), ("A", "\0")]
        columns = [access(path, allowed=one, labels=other) for path in ("", "a") for one in lists for other in lists[:4]]
        sets = [frozenset[str](), frozenset({""}), frozenset({"a"}), frozenset({"", "b"}), frozenset({"\0", "none"})]
        leaves: list[Filter] = [AnyOf("allowed", one) for one in sets]
        leaves += [AnyOf("labels", one) for one in sets[:3]]
        leaves += [OneOf("path", frozenset({""})), StartsWith("path", ""), AnyOf("label_keys", frozenset({""})), ALWAYS, NEVER]
        conditions = [*leaves, *map(Not, leaves), *(Not(Not(one)) for one in leaves[:4])]
        pairs = list(itertools.combinations([*leaves[:4], *map(Not, leaves[5:9])], 2))
        conditions += (
            [And(pair) for pair in pairs] + [Or(pair) for pair in pairs] + [Not(And((one, Not(other)))) for one, other in pairs[:9]]
        )
        await check_filters(store, columns, conditions)

    @settings(max_examples=15, suppress_health_check=_INHERITED)
    @given(columns=st.lists(access_columns(), min_size=1, max_size=10), conditions=st.lists(filters(), min_size=10, max_size=15))
    async def test_random_filters_mean_what_the_algebra_says(
        self, make_store: MakeStore, columns: list[AccessColumns], conditions: list[Filter]
    ) -> None:
        store = make_store(f"random_{next(_NUMBERS)}", DIMENSIONS)
        try:
            await check_filters(store, columns, conditions)
            if len(columns) % 2:
                await store.maintain(force=True)
                await check_filters(store, columns, conditions[:3])
        finally:
            await store.drop()
            await store.close()

    async def test_a_text_query_is_refused_where_there_is_no_full_text(self, store: Store) -> None:
        if store.capabilities.full_text:
            pytest.skip("this store has full text")
        with pytest.raises(ConfigError):
            await store.search(TextQuery(text="word"), filter=ALWAYS, limit=1)

    async def test_a_text_query_finds_only_rows_that_share_a_word(self, text_store: Store) -> None:
        put = [
            row("a", text="Rotate the storage key every quarter."),
            row("b", text="The key is kept in the vault; the key's owner is Ann"),
            row("c", text="Lunch is at noon."),
        ]
        await text_store.apply([PutRows(rows=put)])
        for _ in range(2):
            assert await found(text_store, ALWAYS, query=TextQuery(text="KEY quarter")) == {put[0].text, put[1].text}
            (best, *_) = await text_store.search(TextQuery(text="key quarter"), filter=ALWAYS, limit=1)
            assert best.chunk_id == chunk("a")
            assert await found(text_store, ALWAYS, query=TextQuery(text="absent")) == set()
            await text_store.maintain(force=True)

    async def test_text_scores_fall_from_first_to_last(self, text_store: Store) -> None:
        await text_store.apply([PutRows(rows=[row(f"d{n}", text="apple " * n + "pear " * (20 - n)) for n in range(1, 20)])])
        scores = [match.score for match in await text_store.search(TextQuery(text="apple"), filter=ALWAYS, limit=7)]
        assert len(scores) == 7
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] > 0

    async def test_a_text_query_obeys_the_filter_before_the_limit(self, text_store: Store) -> None:
        put = [row(f"d{n}", text="apple", columns=access(f"{n}", allowed=("rare",) if n == 77 else ())) for n in range(100)]
        await text_store.apply([PutRows(rows=put)])
        rare = AnyOf("allowed", frozenset({"rare"}))
        for _ in range(2):
            result = await text_store.search(TextQuery(text="apple"), filter=rare, limit=1)
            assert [match.chunk_id for match in result] == [put[77].chunk_id]
            assert len(await text_store.search(TextQuery(text="apple"), filter=Not(rare), limit=50)) == 50
            assert await text_store.search(TextQuery(text="apple"), filter=NEVER, limit=5) == []
            await text_store.maintain(force=True)

    async def test_a_text_query_finds_what_shares_one_of_our_terms(self, text_store: Store) -> None:
        """Just that where `our_terms` is declared; whoever does not declare it finds something else."""
        texts = [
            "Straße nach Süden",
            "STRASSE",
            "ﬁle-name_v2",
            "file names",
            "黑洞的物理",
            "黑 洞",
            "naïve café",
            "cafés",
            "running",
            "run",
        ]
        texts += ["e\u0301clair", "éclair", "ＡＢＣ１２", "abc12", "don't", "don t", "C++", "...", "\0 \ud800", "x" * 300]
        texts += [
            "Das Center ist auf der Straße, und es gibt v2 nicht.",
            "one cent",
            "Les cafés de la ville sont dans le centre " + "y" * 300,
        ]
        await text_store.apply([PutRows(rows=[row(f"d{number}", text=text) for number, text in enumerate(texts)])])
        different: list[str] = []
        for query in [*texts, "cafe running", "洞", "v2", "file", "t", "name", "\0", "Straßen", "cent", "centers", "de", "café 黑洞"]:
            asked = set(query_terms(query))
            expected = {text for text in texts if asked & set(row_terms(text))}
            if await found(text_store, ALWAYS, query=TextQuery(text=query)) != expected:
                different.append(query)
        assert bool(different) != text_store.capabilities.our_terms, different

    async def test_words_are_found_without_spaces_and_accents(self, text_store: Store) -> None:
        sentences = {
            "zh": "我们在上海研究黑洞的物理学",
            "ja": "東京タワーへ行きました",
            "ko": "서울에서 회의를 했습니다",
            "th": "ประเทศไทยมีอาหารอร่อย",
        }
        sentences |= {"fr": "Le café très célèbre", "ru": "Сегодня хорошая погода", "hi": "हिन्दी में लिखा हुआ", "ar": "مرحبا بالعالم"}
        await text_store.apply([PutRows(rows=[row(language, text=text) for language, text in sentences.items()])])
        queries = {
            "zh": "黑洞",
            "ja": "タワー",
            "ko": "서울",
            "th": "อาหาร",
            "fr": "CAFE celebre",
            "ru": "погода",
            "hi": "हिन्दी",
            "ar": "بالعالم",
        }
        for _ in range(2):
            for language, words in queries.items():
                assert await found(text_store, ALWAYS, query=TextQuery(text=words)) == {sentences[language]}, language
            assert await found(text_store, ALWAYS, query=TextQuery(text="上")) == {sentences["zh"]}
            assert await found(text_store, ALWAYS, query=TextQuery(text="洞黑")) == set()
            await text_store.maintain(force=True)

    async def test_a_text_query_is_data(self, text_store: Store) -> None:
        await text_store.apply([PutRows(rows=[row("a", text="apple pie"), row("b", text="banana bread")])])
        for text in (
            '"banana apple"',
            "-apple",
            "NOT apple",
            "+apple -pie",
            "apple AND nothing",
            "apple~2",
            "apple^3",
            "text:apple",
            "(apple",
            "apple'",
        ):
            assert "apple pie" in await found(text_store, ALWAYS, query=TextQuery(text=text)), text
        for text in ("brea*", "brea?", "*", "/brea.*/", "brad~1", "[a TO z]", "brea"):
            assert await found(text_store, ALWAYS, query=TextQuery(text=text)) == set(), text
        for text in (*HOSTILE, "apple " * 20_000):
            await text_store.search(TextQuery(text=text), filter=ALWAYS, limit=3)

    async def test_rows_that_are_gone_take_no_place_in_a_result(self, text_store: Store) -> None:
        put = [row(f"d{n}", text="apple", vector=vector(1, n / 1_000)) for n in range(60)]
        await text_store.apply([PutRows(rows=put)])
        await text_store.maintain(force=True)
        gone = [DropDocument(document_id=one.document_id, generation=1) for one in put[:40]]
        moved = [Retag(document_id=one.document_id, access=access("moved", allowed=("g",))) for one in put[40:50]]
        await text_store.apply([*gone, *moved])
        for _ in range(2):
            for query in (TextQuery(text="apple"), VectorQuery(vector=vector(1))):
                left = {match.chunk_id for match in await text_store.search(query, filter=ALWAYS, limit=20)}
                assert left == {one.chunk_id for one in put[40:]}
                granted = await text_store.search(query, filter=AnyOf("allowed", frozenset({"g"})), limit=20)
                assert {match.chunk_id for match in granted} == {one.chunk_id for one in put[40:50]}
            await text_store.maintain(force=True)

    async def test_a_row_that_was_overwritten_is_found_by_its_new_text_only(self, text_store: Store) -> None:
        await text_store.apply([PutRows(rows=[row("a", text="apple"), row("b", text="cherry")])])
        await text_store.maintain(force=True)
        await text_store.apply([PutRows(rows=[row("a", text="banana", generation=2)])])
        for _ in range(2):
            assert await found(text_store, ALWAYS, query=TextQuery(text="apple")) == set()
            assert await found(text_store, ALWAYS, query=TextQuery(text="banana")) == {"banana"}
            await text_store.maintain(force=True)
