"""The matches of both legs in; how much each counts, and what words that stand together are worth, out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.embedding.hashing import HashEmbedder
from ragstore.filters import ALWAYS
from ragstore.models import Match
from ragstore.retrieval.candidates import Candidates
from ragstore.retrieval.evidence import vector_share
from ragstore.retrieval.fusion import fuse
from ragstore.retrieval.phrases import lifted
from tests.support.library import GROUPS, Library


def leg(*scores: float) -> list[Match]:
    return [match(str(number), score=score) for number, score in enumerate(scores)]


def match(name: str, *, text: str = "text", score: float = 1.0) -> Match:
    return Match(chunk_id=name, document_id=name, text=text, score=score)


DECISIVE = leg(9.0, 8.0, *[0.1] * 30)
UNDECIDED = leg(9.0, 8.9, *[8.0] * 30)


def test_the_nearer_the_best_vector_the_more_vectors_count() -> None:
    shares = [vector_share(leg(near, 0.1), DECISIVE, unrelated=0.0) for near in (0.2, 0.4, 0.6, 0.8)]
    assert shares == sorted(set(shares))
    assert shares[0] < 0.2
    assert shares[-1] < 0.5


def test_the_more_texts_hold_the_words_alike_the_more_vectors_count() -> None:
    decisive, undecided = (vector_share(leg(0.8), text, unrelated=0.0) for text in (DECISIVE, UNDECIDED))
    assert decisive == pytest.approx(0.6 * 0.8 * (1 + 0.1 / 9))
    assert undecided == pytest.approx(0.6 * 0.8 * (1 + 8 / 9))


def test_a_cosine_counts_from_that_of_unrelated_texts_on() -> None:
    plain = vector_share(leg(0.5), DECISIVE, unrelated=0.0)
    assert vector_share(leg(0.85), DECISIVE, unrelated=0.7) == pytest.approx(plain)
    assert vector_share(leg(0.5), DECISIVE, unrelated=0.7) == 0.05


def test_both_legs_count_alike_where_nobody_knows_how_the_embedder_sees_unrelated_texts() -> None:
    assert vector_share(leg(0.9), DECISIVE, unrelated=None) == vector_share(leg(0.1), UNDECIDED, unrelated=None) == 0.5


SCORES = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40)


@given(vector=SCORES, text=SCORES, unrelated=st.one_of(st.none(), st.floats(-1, 0.99)))
def test_neither_leg_is_ever_silent(vector: list[float], text: list[float], unrelated: float | None) -> None:
    assert 0.05 <= vector_share(leg(*vector), leg(*text), unrelated=unrelated) <= 0.95


@given(text=st.lists(st.floats(0, 100), min_size=20, max_size=40), more=st.lists(st.floats(0, 1), max_size=40))
def test_asking_for_more_candidates_moves_no_share(text: list[float], more: list[float]) -> None:
    best_first = sorted(text, reverse=True)
    longer = best_first + [best_first[-1] * part for part in sorted(more, reverse=True)]
    assert vector_share(leg(0.6), leg(*best_first), unrelated=0.0) == vector_share(leg(0.6), leg(*longer), unrelated=0.0)


def scores(query: str, *texts: str) -> list[float]:
    return [found.score for found in lifted(query, [match(str(number), text=text) for number, text in enumerate(texts)])]


def test_words_that_stand_together_as_in_the_query_are_worth_more_than_words_apart() -> None:
    together, apart, turned = scores("soy sauce", "rice and Soy Sauce", "sauce of lemon, milk of soy", "a sauce soy")
    assert together == pytest.approx(1.4)
    assert apart == turned == 1.0


def test_a_share_of_the_neighbours_is_worth_that_share() -> None:
    both, one, none = scores("green bay packers", "the Green Bay Packers won", "a green bay", "packers, green and blue")
    assert both > one > none == 1.0
    assert one == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("query", "text"),
    [("地下室钥匙", "这是地下室钥匙"), ("ключ от подвала", "где ключи от подвалов"), ("cellar-door key", "keys: cellar doors key")],
)
def test_neighbours_are_found_in_other_scripts_and_inflected(query: str, text: str) -> None:
    assert scores(query, text, text[::-1])[0] > 1.0


@pytest.mark.parametrize("query", ["soy", "the", "?!", "  "])
def test_a_query_of_one_word_or_none_has_no_neighbours(query: str) -> None:
    assert scores(query, "soy the soy", "the") == [1.0, 1.0]


@given(query=st.text(max_size=40), texts=st.lists(st.text(max_size=80), max_size=30))
def test_lifting_drops_nothing_and_lowers_nothing(query: str, texts: Sequence[str]) -> None:
    before = [match(str(number), text=text, score=float(len(texts) - number)) for number, text in enumerate(texts)]
    after = lifted(query, before)
    assert [found.chunk_id for found in after] == [found.chunk_id for found in before]
    assert all(was.score <= now.score <= 1.4 * was.score + 1e-9 for was, now in zip(before, after, strict=True))


def test_of_texts_that_score_alike_none_is_lifted_for_standing_first() -> None:
    assert scores("soy sauce", *["soy sauce"] * 40) == pytest.approx([1.4] * 40)


def test_a_text_without_end_costs_no_more_than_its_beginning() -> None:
    assert scores("soy sauce", "x " * 3_000 + "soy sauce", "x " * 100 + "soy sauce") == [1.0, pytest.approx(1.4)]


class Calibrated(HashEmbedder):
    """An embedder that says from where on its cosines mean something."""

    def __init__(self) -> None:
        super().__init__()
        self.unrelated_cosine = 0.0


async def ranked(library: Library, query: str, *, calibrated: bool, **said: float) -> list[tuple[str, float]]:
    embedder = Calibrated() if calibrated else HashEmbedder()
    weight = said.get("vector_weight")
    return await Candidates(
        store=library.store, embedder=embedder, query=query, filter=ALWAYS, legs="both", fusion="max-norm", vector_weight=weight
    ).best(100)


async def test_a_weight_that_is_said_is_not_moved_by_evidence(request: pytest.FixtureRequest) -> None:
    library = Library(request.node.name, GROUPS)
    await library.add("a.md", "the cellar key", "a key of brass", "a door")
    query = "where is the cellar key"
    assert await ranked(library, query, calibrated=True, vector_weight=0.5) == await ranked(library, query, calibrated=False)
    assert await ranked(library, query, calibrated=True) != await ranked(library, query, calibrated=False)


async def test_what_the_words_are_not_asked_for_lifts_nothing(request: pytest.FixtureRequest) -> None:
    library = Library(request.node.name, GROUPS)
    await library.add("a.md", "the cellar key", "a key of the cellar")
    query = "cellar key"
    beyond = query + " " * (10_000 - len(query)) + "key of brass"
    assert await ranked(library, beyond, calibrated=False, vector_weight=0.0) == await ranked(
        library, query, calibrated=False, vector_weight=0.0
    )


async def test_what_was_not_found_by_words_still_stands_in_the_order_of_the_vectors(request: pytest.FixtureRequest) -> None:
    library = Library(request.node.name, GROUPS)
    await library.add("a.md", "brass keyring", "door", "keyrings of old brass")
    found = await ranked(library, "keyringz", calibrated=True)
    by_vector = await Candidates(
        store=library.store, embedder=HashEmbedder(), query="keyringz", filter=ALWAYS, legs="vector", fusion="max-norm"
    ).best(100)
    positive = [chunk for chunk, score in by_vector if score > 0]
    assert [chunk for chunk, _ in found][: len(positive)] == positive


def test_a_score_that_is_no_number_is_no_evidence() -> None:
    assert vector_share(leg(math.nan, 0.5), DECISIVE, unrelated=0.0) == vector_share(leg(0.5), DECISIVE, unrelated=0.0)
    assert dict(fuse(leg(math.nan), leg(1.0), fusion="max-norm", vector_complete=True)) == {"0": 0.5}
