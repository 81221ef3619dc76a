"""Bytes of any kind: decoding never damages silently, and parsing raises nothing but PoisonError."""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.errors import PoisonError
from ragstore.parsing import parse
from ragstore.parsing.charsets import canonical
from ragstore.parsing.decode import choose, pieces
from ragstore.parsing.media_types import BY_EXTENSION, Kind
from ragstore.parsing.normalize import normalize, normalize_pieces

EXTENSIONS = {kind: sorted(suffix for suffix, (of, _) in BY_EXTENSION.items() if of == kind) for kind, _ in BY_EXTENSION.values()}
TEXTS = {
    "cp1252": "Die schöne Frau hat einen großen Kaffee mit Kuchen gegessen, für zwölf Euro.",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "iso8859_2": "Zażółć gęślą jaźń, powiedział król do królowej.",
    "cp1254": "Bütün insanlar özgür, onur ve haklar bakımından eşit doğarlar.",
    "cp1251": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "koi8_r": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "cp866": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "cp1253": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "cp1255": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "cp1256": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "cp874": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "cp932": "すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。",
    "euc_jp": "すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。",
    "iso2022_jp": "すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。",
    "gb18030": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。",
    "big5": "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心。",
    "euc_kr": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}


def read(data: bytes, declared: str | None = None) -> tuple[str, str]:
    stream = io.BytesIO(data)
    decoding = choose(stream, declared)
    return "".join(pieces(stream, decoding)), decoding.encoding


def parse_all(data: bytes, name: str, declared: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spooled"
        file.write_bytes(data)
        return "".join(block.text for block in parse(file, name=name, declared=declared).blocks)


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("declared", [None, "utf-8", "iso-8859-1", "x-no-such"])
def test_legacy_text_is_read_whatever_was_declared(encoding: str, declared: str | None) -> None:
    text = TEXTS[encoding]
    assert read(text.encode(encoding), declared)[0] == text


@pytest.mark.parametrize("encoding", [encoding for encoding in TEXTS if not encoding.startswith("iso2022")])
def test_a_short_text_is_read_as_declared(encoding: str) -> None:
    word = next(word for word in TEXTS[encoding].split() if not word.isascii())
    assert read(word.encode(encoding), encoding)[0] == word


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])), st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]))
def test_text_behind_a_bom_is_read_back(text: str, encoding: str) -> None:
    assert read(text.encode(encoding), "cp1252")[0] == text


@given(st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc"])))
def test_valid_utf8_is_read_as_utf8_whatever_was_declared(text: str) -> None:
    assert read(text.encode(), "cp1252") == (text, "utf-8")


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x24F, exclude_categories=["Cc"]), min_size=4), st.sampled_from(["le", "be"])
)
def test_utf16_without_a_bom_is_read(text: str, order: str) -> None:
    text = "Words that stand in front. " + text
    assert read(text.encode(f"utf-16-{order}"), "utf-8")[0] == text


@given(st.binary(max_size=400))
def test_any_bytes_are_text_with_a_known_codec_or_refused(data: bytes) -> None:
    with contextlib.suppress(PoisonError):
        text, encoding = read(data)
        assert canonical(encoding)
        assert normalize(text).encode().decode() == normalize(text)


@given(st.binary(min_size=1, max_size=60).filter(lambda data: not data.isascii()))
def test_bytes_that_were_replaced_are_never_silent(data: bytes) -> None:
    stream = io.BytesIO(b"words in front, " * 20 + data)
    with contextlib.suppress(PoisonError):
        decoding = choose(stream)
        if "\ufffd" in "".join(pieces(stream, decoding)) and "\ufffd".encode() not in data:
            assert decoding.warnings or not decoding.encoding.startswith(("utf-8", "cp125"))


@given(st.lists(st.text(st.sampled_from("a\r\n\0\f\ufeff\ud800é"))))
def test_normalising_pieces_is_normalising_the_whole(parts: list[str]) -> None:
    assert "".join(normalize_pieces(parts)) == normalize("".join(parts))


@pytest.mark.parametrize("kind", EXTENSIONS)
@given(data=st.data())
def test_random_bytes_never_raise_anything_but_poison(kind: Kind, data: st.DataObject) -> None:
    extension = data.draw(st.sampled_from(EXTENSIONS[kind]))
    content = data.draw(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
    declared = data.draw(st.none() | st.text(max_size=30) | st.sampled_from(["text/html; charset=utf-16", "application/json"]))
    with contextlib.suppress(PoisonError):
        assert parse_all(content, f"a{extension}", declared).encode() is not None


def seeds() -> list[tuple[str, bytes]]:
    """A small valid file of formats with a structure to break."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr(
            "content.xml", "<a xmlns:text='t'><text:h text:outline-level='2'>h</text:h><text:p>words<text:s text:c='3'/></text:p></a>"
        )
    return [
        ("a.odt", buffer.getvalue()),
        ("a.rtf", rb"{\rtf1\ansi\ansicpg1252 words \'e4 \u-10179? \par {\b x}}"),
        ("a.eml", b"Subject: =?utf-8?q?=C3=A4?=\nContent-Type: multipart/mixed; boundary=X\n\n--X\n\nwords\n--X--\n"),
        ("a.html", b"<html><h1>a</h1><table><tr><td>b</table>&amp;<p>words"),
        ("a.xml", b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>words &b;</a>"),
        ("a.json", b'{"a": [1, {"b": "words \\ud83d"}]}'),
        ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": ["words"], "outputs": [{"text": "x"}]}]}'),
        ("a.csv", b'a,b\n1,"words\n2,3\n'),
        ("a.md", b"---\ntitle: x\n---\n# words\n\nx\n===\n```\n# y\n"),
        (
            "a.pdf",
            b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Count 0/Kids[]>>endobj trailer<</Root 1 0 R>>",
        ),
    ]


@pytest.mark.parametrize(("name", "valid"), seeds(), ids=[name for name, _ in seeds()])
@given(data=st.data())
def test_a_damaged_file_never_raises_anything_but_poison(name: str, valid: bytes, data: st.DataObject) -> None:
    damaged = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        damaged[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    with contextlib.suppress(PoisonError):
        assert parse_all(bytes(damaged), name).encode() is not None
