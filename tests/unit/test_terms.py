"""How texts become search terms."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragstore.languages import FUNCTION_WORDS, LANGUAGES, told
from ragstore.terms import fold, query_chains, query_terms, row_terms, row_text, words


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
    assert query_chains(text)[0] == terms


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
    assert row_terms("The blob is not in the index, and that was it") == query_chains("index of blob")[0][::-1] == ["blob", "index"]
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
    assert query_chains(text)[0] == of_query


@given(st.text(st.characters()))
def test_a_query_that_is_the_text_of_a_row_asks_for_terms_of_the_row_and_of_other_languages(text: str) -> None:
    assume(told(words(text)) is None)
    assert {term for term in query_terms(text) if "_" not in term} == set(query_chains(text)[0]) <= set(row_terms(text))


@given(st.text(st.characters()))
def test_the_joined_terms_are_the_terms(text: str) -> None:
    assert row_text(text).split() == row_terms(text)


@given(st.text(st.characters()))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert row_terms(fold(text)) == row_terms(text)


def test_a_long_text_takes_linear_time() -> None:
    assert len(row_terms("a" * 2_000_000 + "\u0300é" * 200_000)) == 1


SENTENCES = {
    "german": "Die Verteidigungen der Stadt und ihre Häuser wurden bei dem Angriff nicht zerstört.",
    "french": "Les maisons de la ville ont été détruites par le feu, mais pas les églises qui sont sur la colline.",
    "spanish": "Las naciones del continente firmaron un acuerdo para proteger los bosques y las aguas.",
    "italian": "Le montagne della regione sono coperte di neve anche nella stagione calda.",
    "portuguese": "As florestas do país não são protegidas por uma lei, mas os rios sim.",
    "dutch": "De huizen van het dorp werden niet door de brand verwoest, maar de kerk wel.",
    "swedish": "Flickorna och pojkarna i byn har inte någon skola, men det finns en lärare som undervisar.",
    "danish": "Der var ikke nogen skole i byen, men børnene blev undervist af en lærer efter krigen.",
    "norwegian": "Det var ikke noen skole i byen, men barna ble undervist av en lærer etter krigen.",
    "finnish": "Talossa ei ollut sähköä, mutta se oli lämmin ja kaunis, kun aurinko paistoi.",
    "turkish": "Kitaplar ve dergiler bu kütüphanede çok eski olduğu için daha iyi korunmalıdır.",
    "romanian": "Casele din sat sunt vechi și au fost construite pentru muncitori după război.",
    "hungarian": "A házak nem voltak nagyok, de az udvar szép volt, és a kert is.",
    "polish": "Miasta na wschodzie nie są tak duże jak stolica, ale mają piękne zamki.",
}
ASKED = {
    "german": "Verteidigung",
    "french": "maison",
    "spanish": "nación",
    "italian": "montagna",
    "portuguese": "floresta",
    "dutch": "huis",
    "swedish": "flicka",
    "danish": "lærere",
    "norwegian": "krig",
    "finnish": "talo",
    "turkish": "kitap",
    "romanian": "muncitor",
    "hungarian": "ház",
    "polish": "miasto",
}
ENGLISH = [
    "The defenders of the city were not killed in the attack, and their houses are still there.",
    "Vincent van der Berg and Maria de la Cruz met in Los Angeles with people of the company.",
    "He said: die Würde des Menschen ist unantastbar, which is the first sentence of the constitution.",
    "apples, pears, plums, cars, quokkas",
    "error 0x80070005 E_ACCESSDENIED",
    "José García, Zoë Müller, Łukasz",
    "",
]


def finds(query: str, text: str) -> bool:
    return not set(query_terms(query)).isdisjoint(row_terms(text))


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_a_row_is_found_by_another_form_of_a_word_in_its_own_language(language: str, text: str) -> None:
    assert told(words(text)) == language
    assert finds(ASKED[language], text)
    assert not set(words(ASKED[language])) & set(words(text))


def test_words_that_english_has_too_tell_apart_what_others_leave_open() -> None:
    assert told(words("Sopimus on allekirjoitettu ja se on voimassa")) == "finnish"


def test_each_language_is_tried() -> None:
    assert SENTENCES.keys() == ASKED.keys() == LANGUAGES.keys() == FUNCTION_WORDS.keys()


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not_taken_for_another_language(text: str) -> None:
    assert told(words(text)) is None
    assert not any("_" in term for term in row_terms(text))


def test_a_word_is_not_found_by_the_stem_of_another_language() -> None:
    german = "Das Center ist in der Stadt und wird von vielen Leuten besucht."
    assert "de_cent" in row_terms(german)
    assert finds("centers", german)
    assert not finds("cent", "The center of the town.")
    assert not finds("center", "One cent of the money.")


def test_numbers_and_other_scripts_are_the_same_in_every_language() -> None:
    terms = row_terms("Die 3. Ausgabe von v2 ist nicht aus 北京 und nicht aus Москва.")
    assert {"3", "v2", "北京", "москв", "de_ausgab"} <= set(terms)
    assert query_chains("2024 北京 Москва") == [["2024", "北京", "москв"]]
    assert query_chains("v2 北京 Haus")[1] == ["v2", "北京", "de_haus"]


def test_the_language_that_a_query_tells_comes_first_and_english_next() -> None:
    assert [chain[-1] for chain in query_chains("Gdzie jest i co to za miasto?")[:3]] == ["pl_miast", "miasto", "de_miasto"]
    assert query_chains("wer war der Kanzler")[:2] == [["de_kanzl"], ["wer", "war", "der", "kanzler"]]
    assert query_chains("wer war der")[0] == ["wer", "war", "der"]


def test_a_long_query_asks_for_all_its_words_in_the_language_that_it_tells_and_for_few_in_others() -> None:
    german = [f"der{letter} und die nicht" for letter in "abcdefghij"] * 100
    asked = query_terms(" ".join(german) + " Verteidigung")
    assert "de_verteid" in asked[:1_024]
    assert "verteidigung" in asked
    assert "fr_verteidigung" not in asked
    assert any(term.startswith("fr_") for term in asked)


def test_function_words_are_left_out_of_rows_of_their_language_only() -> None:
    assert row_terms("Wer ist der Kanzler und wo wohnt er?") == ["de_kanzl", "de_wohnt"]
    assert row_terms("Der Kanzler") == ["der", "kanzler"]


text_of_any = st.one_of(
    st.text(st.characters()),
    st.sampled_from([*SENTENCES.values(), *ENGLISH]),
    st.lists(
        st.sampled_from([*words(" ".join([*SENTENCES.values(), *ENGLISH])), "北京", "Москва", "v2", "1.5", "ελλάδα"]), max_size=30
    ).map(" ".join),
)


@given(text_of_any)
def test_a_row_is_found_by_each_of_its_own_words(text: str) -> None:
    left_out = FUNCTION_WORDS.get(told(words(text)) or "", frozenset())
    for word in set(words(text)) - left_out:
        assert finds(word, text) or not query_chains(word)[0], word


@given(text_of_any)
def test_the_terms_of_a_query_are_those_of_its_chains(text: str) -> None:
    first, *more = query_chains(text)
    asked = query_terms(text)
    assert asked[: len(first)] == first
    assert set(asked) == set(first).union(*more)
    assert len(asked[len(first) :]) == len(set(asked) - set(first))
    assert all(not set(first).issuperset(chain) for chain in more)


@given(text_of_any)
def test_a_row_is_found_by_its_own_text(text: str) -> None:
    assert not row_terms(text) or finds(text, text)


def test_marks_without_end_take_no_time_and_change_no_word_around_them() -> None:
    text = "ein \u00e9" + "\u0301\u0316" * 200_000 + "clair und \u0440\u0435\u043a\u0430"
    assert words(text) == words("ein \u00e9clair und \u0440\u0435\u043a\u0430")
