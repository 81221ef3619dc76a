"""Every format that can be read, from files made here: what text comes out, with which marks, or which kind of error."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import office_oxide
import pytest

from ragstore.errors import PoisonError
from ragstore.parsing import parse
from ragstore.parsing.outlook import decompress
from ragstore.parsing.rtf import rtf_text
from tests.support.formats import Parser, marked, opendocument, package, pdf


@pytest.fixture
def parser(tmp_path: Path) -> Parser:
    return Parser(tmp_path)


def test_a_pdf_keeps_pages_title_and_outline(parser: Parser) -> None:
    document = parser.document(pdf("First page", "Chapter two begins", title="The title", outline="Chapter  two"), "a.pdf")
    (block,) = document.blocks
    assert document.title == "The title"
    assert block.text == "First page\n\nChapter two begins"
    assert [(mark.number, block.text[mark.start :][:5]) for mark in block.pages] == [(1, "First"), (2, "Chapt")]
    assert marked(block) == [(1, "Chapter two", "Chapter two begins")]


def test_a_pdf_without_text_is_no_text_and_a_broken_one_is_corrupt(parser: Parser) -> None:
    assert parser.kind(pdf("", " "), "a.pdf") == "no_text"
    assert parser.kind(pdf("words")[:200], "a.pdf") == "corrupt"


def test_a_word_file_keeps_headings_and_table_rows(parser: Parser, tmp_path: Path) -> None:
    file = tmp_path / "a.docx"
    office_oxide.create_from_markdown("# One\n\nSome **bold** words.\n\n## Two\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", "docx", file)
    document = parser.document(file.read_bytes(), "a.docx")
    (block,) = document.blocks
    assert [heading[:2] for heading in marked(block)] == [(1, "One"), (2, "Two")]
    assert all(line == f"{'#' * level} {words}" for level, words, line in marked(block))
    assert "Some bold words." in block.text
    assert "a | b\n1 | 2\n" in block.text
    assert document.title == "One"


def test_a_workbook_has_a_page_per_sheet(parser: Parser, tmp_path: Path) -> None:
    writer = office_oxide.XlsxWriter()
    for number, name in enumerate(("Prices", "Costs")):
        sheet = writer.add_sheet(name)
        writer.set_cell(sheet, 0, 0, "item")
        writer.set_cell(sheet, 0, 1, "amount")
        writer.set_cell(sheet, 1, 0, f"thing {number}")
        writer.set_cell(sheet, 1, 1, 12.5)
    file = tmp_path / "a.xlsx"
    writer.save(file)
    block = parser.block(file.read_bytes(), "a.xlsx")
    assert [mark.number for mark in block.pages] == [1, 2]
    assert block.text[block.pages[1].start :].startswith("## Costs\n\nitem | amount\nthing 1 | 12.5")


def test_a_presentation_has_a_page_per_slide(parser: Parser, tmp_path: Path) -> None:
    writer = office_oxide.PptxWriter()
    for name in ("Hello", "Goodbye"):
        slide = writer.add_slide()
        writer.set_slide_title(slide, name)
        writer.add_slide_text(slide, f"{name} text")
    file = tmp_path / "a.pptx"
    writer.save(file)
    block = parser.block(file.read_bytes(), "a.pptx")
    assert [mark.number for mark in block.pages] == [1, 2]
    assert "Goodbye text" in block.text[block.pages[1].start :]
    assert "Goodbye" not in block.text[: block.pages[1].start]


def test_an_opendocument_text_keeps_headings_tables_and_spaces(parser: Parser) -> None:
    content = (
        '<text:h text:outline-level="2">Head</text:h><text:p>a<text:s text:c="3"/>b<text:line-break/>c</text:p>'
        "<table:table><table:table-row><table:table-cell><text:p>k</text:p></table:table-cell>"
        '<table:table-cell table:number-columns-repeated="1000000"/></table:table-row></table:table>'
    )
    block = parser.block(opendocument(content), "a.odt")
    assert block.text == "## Head\n\na   b\nc\n\nk\n\n"
    assert marked(block) == [(2, "Head", "## Head")]


def test_an_opendocument_sheet_has_a_page_per_sheet(parser: Parser) -> None:
    cell = "<table:table-cell><text:p>in {0}</text:p></table:table-cell>"
    sheet = f'<table:table table:name="{{0}}"><table:table-row>{cell}</table:table-row></table:table>'
    block = parser.block(opendocument(sheet.format("A") + sheet.format("B"), "spreadsheet"), "a.ods")
    assert [(mark.number, block.text[mark.start :][:4]) for mark in block.pages] == [(1, "## A"), (2, "## B")]


def test_a_book_is_read_in_the_order_of_its_spine(parser: Parser) -> None:
    data = package(
        mimetype="application/epub+zip",
        **{
            "META-INF/container.xml": "<container><rootfiles><rootfile full-path='b/c.opf'/></rootfiles></container>",
            "b/c.opf": "<package><metadata><dc:title xmlns:dc='d'>The Book</dc:title></metadata>"
            "<manifest><item id='x' href='one%20a.xhtml'/>"
            "<item id='y' href='../two.xhtml'/><item id='z' href='../../../gone.xhtml'/></manifest>"
            "<spine><itemref idref='y'/><itemref idref='x'/><itemref idref='z'/></spine></package>",
            "b/one a.xhtml": "<html><body><h1>One</h1></body></html>",
            "two.xhtml": "<html><body><h1>Two</h1></body></html>",
        },
    )
    document = parser.document(data, "a.epub")
    (block,) = document.blocks
    assert document.title == "The Book"
    assert [heading[1] for heading in marked(block)] == ["Two", "One"]


@pytest.mark.parametrize("name", ["a.odt", "a.epub"])
def test_a_package_with_a_password_is_encrypted_and_one_without_content_is_corrupt(parser: Parser, name: str) -> None:
    mimetype = "application/epub+zip" if name == "a.epub" else "application/vnd.oasis.opendocument.text"
    broken = package(mimetype=mimetype, **{"content.xml": "<a><b></a>", "META-INF/container.xml": "<a"})
    assert parser.kind(broken, name) in {"corrupt", "no_text"}
    locked = package(mimetype=mimetype, **{"content.xml": "x", "META-INF/manifest.xml": "<m><encryption-data/></m>"})
    assert parser.kind(locked, name) in {"encrypted", "no_text"}


def test_a_page_keeps_headings_lists_tables_and_code(parser: Parser) -> None:
    markup = b"""<title>The &amp; title</title><style>p{}</style><script>alert(1)</script><h1>One <b>two</b></h1>
        <p>A <a href="http://x.y/z">link</a> and *stars*</p><pre># no heading</pre><p># no heading either</p>
        <table><tr><th>k<th>v<tr><td>a<td>b</table><h2>Next</h2><ul><li>item</ul>"""
    document = parser.document(markup, "a.html")
    (block,) = document.blocks
    assert document.title == "The & title"
    assert marked(block) == [(1, "One two", "# One two"), (2, "Next", "## Next")]
    assert "A link and *stars*" in block.text
    assert "| a | b |" in block.text
    assert "- item" in block.text
    assert "alert" not in block.text
    assert "http" not in block.text


def test_titles_and_headings_of_any_length_are_cut_short(parser: Parser) -> None:
    long = "word " * 10_000
    document = parser.document(f"<title>{long}</title><h1>{long}</h1>".encode(), "a.html")
    (block,) = document.blocks
    assert document.title == block.headings[0].text
    assert len(block.headings[0].text) == 300
    assert block.text == "# " + long.strip()


def test_a_table_that_only_places_things_becomes_paragraphs(parser: Parser) -> None:
    markup = f"<table><tr><td>menu<td><h1>Head</h1>{'word ' * 200}<br><br>end</table>".encode()
    block = parser.block(markup, "a.html")
    assert "|" not in block.text
    assert marked(block) == [(1, "Head", "# Head")]
    assert block.text.endswith("\n\nend")


@pytest.mark.parametrize("declared", [None, "text/html; charset=utf-8"])
def test_a_charset_that_a_page_declares_is_not_believed_where_it_is_wrong(parser: Parser, declared: str | None) -> None:
    words = "في قرية من القرى كان يعيش رجل فقير مع زوجته وأولاده في بيت صغير"
    markup = f'<html><meta charset="utf-8"><p>{words}</p></html>'.encode("cp1256")
    document = parser.document(markup, "a.html", declared)
    assert document.encoding == "cp1256"
    assert words in next(iter(document.blocks)).text


def test_xml_gives_text_without_ever_expanding_an_entity(parser: Parser) -> None:
    laughs = "<!DOCTYPE a [<!ENTITY x 'ha'><!ENTITY y '&x;&x;'><!ENTITY f SYSTEM 'file:///etc/passwd'>]>"
    text = parser.text(
        f"<?xml version='1.0' encoding='utf-8'?>{laughs}<a><title>T</title><b>one &y;&f; &amp; two</b></a>".encode(), "a.xml"
    )
    assert "root:" not in text
    assert "ha" not in text
    assert "one" in text
    assert "& two" in text


def test_html_inside_of_xml_is_read_as_html(parser: Parser) -> None:
    block = parser.block(b"<rss><item><title>T</title><d>&lt;h2&gt;Sub&lt;/h2&gt;&lt;p&gt;words&lt;/p&gt;</d></item></rss>", "a.rss")
    assert marked(block) == [(2, "Sub", "## Sub")]
    assert "<p>" not in block.text


def test_xml_that_is_not_well_formed_is_read_as_a_page_with_a_warning(parser: Parser) -> None:
    block = parser.block(b"<?xml version='1.0'?><a>some<b>words</a>", "a.xml")
    assert "some" in block.text
    assert "not well-formed" in block.warnings[0]


def test_json_values_keep_their_keys_and_their_digits(parser: Parser) -> None:
    value = {"title": "T", "n": [{"a": 1, "b": None}, {"a": True}], "s": "half \ud83d pair"}
    text = parser.text(json.dumps(value).encode().replace(b": 1,", b": " + b"9" * 5000 + b","), "a.json")
    assert text == f"title: T\nn.a: {'9' * 5000}\nn.a: true\ns: half \ufffd pair\n"


def test_objects_of_a_list_stand_apart(parser: Parser) -> None:
    assert parser.text(b'[{"a": 1}, {"a": 2}]', "a.json") == "a: 1\n\na: 2\n"


def test_long_keys_cannot_make_a_small_file_a_large_text(parser: Parser) -> None:
    value = json.dumps({"k" * 100_000: ["v"] * 1000 + [{"k" * 1000: "v"}] * 1000}).encode()
    assert len(parser.text(value, "a.json")) < 300_000


@pytest.mark.parametrize(("data", "kind"), [(b"[" * 100_000 + b"]" * 100_000, "too_deep"), (b"{}", "no_text"), (b" \n", "empty")])
def test_json_without_text_or_end_is_poison(parser: Parser, data: bytes, kind: str) -> None:
    assert parser.kind(data, "a.json") == kind


def test_json_with_comments_is_read_as_text_with_a_warning(parser: Parser) -> None:
    block = parser.block(b'{"a": 1, // why\n}', "tsconfig.json")
    assert "// why" in block.text
    assert "not valid JSON" in block.warnings[0]


def test_a_notebook_gives_its_cells_and_what_they_printed(parser: Parser) -> None:
    outputs = [{"text": ["out\n"]}, {"data": {"text/plain": "7", "image/png": "AAAA"}}]
    cells = [
        {"cell_type": "markdown", "source": ["# Head\n", "words"]},
        {
            "cell_type": "code",
            "source": "# comment\nf()",
            "outputs": outputs,
        },
    ]
    document = parser.document(json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}}).encode(), "a.ipynb")
    (block,) = document.blocks
    assert block.text == "# Head\nwords\n\n```python\n# comment\nf()\n```\n\nout\n\n7\n\n"
    assert document.title == "Head"
    assert marked(block) == [(1, "Head", "# Head")]


MAIL = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@x.y>
To: a@b.c
Date: Mon, 1 Jan 2024 10:00:00 +0000
Subject: =?utf-8?b?4pi4?= =?x-unknown?b?aGk=?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=X

--X
Content-Type: multipart/alternative; boundary=Y

--Y
Content-Type: text/plain; charset=x-no-such

plain words
--Y
Content-Type: text/html

<p>html words</p>
--Y--
--X
Content-Type: application/pdf; name="report.pdf"
Content-Disposition: attachment; filename="report.pdf"
Content-Transfer-Encoding: base64

JVBERi0=
--X--
"""


def test_a_mail_gives_its_headers_body_and_the_names_of_attachments(parser: Parser) -> None:
    document = parser.document(MAIL, "a.eml")
    (block,) = document.blocks
    assert document.title == "☸hi"
    assert "From: Jürgen <j@x.y>" in block.text
    assert "plain words" in block.text
    assert "html words" not in block.text
    assert "Attachment: report.pdf" in block.text
    assert "JVBERi0" not in block.text


def test_a_broken_header_costs_the_header_alone(parser: Parser) -> None:
    document = parser.document(b"Subject: =?utf-8?b?A?= x\nFrom: a@b.c\n\nwords", "a.eml")
    assert "words" in next(iter(document.blocks)).text
    assert document.title


def test_a_mail_with_html_alone_is_read_as_a_page(parser: Parser) -> None:
    text = parser.text(b"Subject: s\nFrom: a@b.c\nContent-Type: text/html; charset=iso-8859-1\n\n<p>k\xf6nnen</p>", "a.eml")
    assert text.endswith("können\n\n")


def test_a_mailbox_gives_every_message_under_its_subject(parser: Parser) -> None:
    one = b"From a@b.c Mon Jan  1 00:00:00 2024\nSubject: One\n\nfirst body\n\n"
    block = parser.block(one + one.replace(b"One", b"Two").replace(b"first", b"second"), "a.mbox")
    assert [heading[1] for heading in marked(block)] == ["One", "Two"]
    assert "second body" in block.text


def test_deep_mime_is_too_deep_or_read(parser: Parser) -> None:
    message = b"Subject: s\n"
    for number in range(2000):
        message += b"Content-Type: multipart/mixed; boundary=%d\n\n--%d\n" % (number, number)
    assert parser.kind(message + b"\ninnermost", "a.eml") in {"too_deep", "corrupt"}


def test_rich_text_gives_paragraphs_and_characters_beyond_the_first_plane() -> None:
    markup = (
        rb"{\rtf1\ansi\ansicpg1252 K\'f6nnen\par \u-10179?\u-8704? end {\pict\pngblip 89504e470d0a1a0a0000000d49484452000002000000020008}}"
    )
    text = rtf_text(markup)
    assert text.startswith("Können\n")
    assert "😀 end" in text


def test_compressed_rich_text_of_a_message_is_inflated() -> None:
    """The example of [MS-OXRTFCP] 4.1.1."""
    data = bytes.fromhex("2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0")
    assert decompress(data) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"


def test_rich_text_of_a_message_that_is_not_compressed_is_taken_as_it_is() -> None:
    assert decompress(struct.pack("<IIII", 20, 4, 0x414C454D, 0) + b"{rtf") == b"{rtf"


def test_a_text_beyond_the_limit_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_bytes(b"<p>" + b"word " * 1000)
    with pytest.raises(PoisonError) as caught:
        parse(file, name="a.html", declared=None, text_limit=1000)
    assert caught.value.kind == "too_large"


def test_a_file_that_is_not_there_is_no_poison(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        parse(tmp_path / "gone", name="a.txt", declared=None)
