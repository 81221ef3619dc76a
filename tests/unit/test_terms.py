"""How texts become search terms."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.terms import fold, query_terms, row_terms, row_text, words


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The quick-brown Fox's 2nd_run", ["quick", "brown", "fox", "s", "2nd", "run"]),
        ("Café ÉCLAIR naïve Straße", ["cafe", "eclair", "naiv", "strass"]),
        ("ﬁne ＡＢＣ １２ ① ™", ["fine", "abc", "12", "1", "tm"]),
        ("Ελλάδα Йогурт ёлка", ["ελλαδ", "йогурт", "елк"]),
        ("soft\u00adhyphen zero\u200bwidth", ["softhyphen", "zerowidth"]),
        ("हिन्दी में।", ["हिन्द", "म"]),
        ("مَرْحَبًا كتـاب", ["مرحب", "كتاب"]),
        ("", []),
        (" \n-_'\"%*\0\ud800", []),
    ],
)
def test_words_are_split_and_folded(text: str, terms: list[str]) -> None:
    assert row_terms(text) == terms
    assert query_terms(text) == terms


@pytest.mark.parametrize(
    "forms",
    [
        "строительство строительства строительству",
        "renames renaming renamed Rename",
        "naïvely naively",
        "академия академией академии",
        "كتاب الكتاب كتابها",
        "लड़की लड़कियों",
        "αρχαία αρχαίος",
    ],
)
def test_forms_of_a_word_are_one_term(forms: str) -> None:
    assert len(set(row_terms(forms))) == 1


def test_the_commonest_words_of_english_are_no_terms() -> None:
    assert row_terms("The blob is not in the index, and that was it") == query_terms("index of blob")[::-1] == ["blob", "index"]
    assert query_terms("to be or not to be") == []
    assert words("To be, or not to be") == ["to", "be", "or", "not", "to", "be"]


def test_threads_may_stem_at_once() -> None:
    words = [f"академи{ending}" for ending in ("я", "ей", "и", "ю")] * 500
    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(row_terms, words)) == {"академ"}


@pytest.mark.parametrize(
    ("text", "of_row", "of_query"),
    [
        ("黑洞学", ["黑", "洞", "学", "黑洞", "洞学"], ["黑洞", "洞学"]),
        ("猫", ["猫"], ["猫"]),
        ("AI模型v2", ["ai", "模", "型", "模型", "v2"], ["ai", "模型", "v2"]),
        ("ｶﾀｶﾅ", ["カ", "タ", "カ", "ナ", "カタ", "タカ", "カナ"], ["カタ", "タカ", "カナ"]),
        ("서울에서 봄", ["서", "울", "에", "서", "서울", "울에", "에서", "봄"], ["서울", "울에", "에서", "봄"]),
        ("𠀋𠮷", ["𠀋", "𠮷", "𠀋𠮷"], ["𠀋𠮷"]),
    ],
)
def test_scripts_without_spaces_become_pairs_of_characters(text: str, of_row: list[str], of_query: list[str]) -> None:
    assert row_terms(text) == of_row
    assert query_terms(text) == of_query


@given(st.text(st.characters()))
def test_a_query_that_is_the_text_of_a_row_asks_for_terms_of_the_row_only(text: str) -> None:
    assert set(query_terms(text)) <= set(row_terms(text))


@given(st.text(st.characters()))
def test_the_joined_terms_are_the_terms(text: str) -> None:
    assert row_text(text).split() == row_terms(text)


@given(st.text(st.characters()))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert row_terms(fold(text)) == row_terms(text)


def test_a_long_text_takes_linear_time() -> None:
    assert len(row_terms("a" * 2_000_000 + "\u0300é" * 200_000)) == 1
