"""XML in, its text out: element by element, without ever building a tree, fetching an entity or expanding one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.parsers import expat

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.detect import Detected
from ragstore.parsing.html import add_page
from ragstore.parsing.normalize import normalize
from ragstore.parsing.text import read_text

_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]{1,40})", re.IGNORECASE)
_MARKUP = re.compile(r"<(?:p|div|br|ul|ol|table|h[1-6]|a|img|span|strong|em|b|i|pre|blockquote)\b[^<>]*>", re.IGNORECASE)


def walk(text: str, *, start: Callable[[str, dict[str, str]], None], end: Callable[[str], None], data: Callable[[str], None]) -> None:
    """Call back for each element and run of text; names come without their namespace.

    Raises `PoisonError("corrupt", ...)` where the XML is not well-formed. An entity that the file itself declares is dropped: they
    are how small files inflate without bound and how others' files are read.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 65_536
    parser.StartElementHandler = lambda name, attributes: start(_local(name), {_local(key): value for key, value in attributes.items()})
    parser.EndElementHandler = lambda name: end(_local(name))
    parser.CharacterDataHandler = data
    parser.DefaultHandler = lambda _piece: None  # with this handler expat does not expand entities that the file declares
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(_without_declaration(text).encode(), True)  # noqa: FBT003 - expat takes it by position only
    except expat.ExpatError as error:
        raise PoisonError("corrupt", f"the XML is not well-formed: {error}") from error


def _without_declaration(text: str) -> str:
    """The text is decoded already: an encoding that it still declares would be wrong."""
    declaration = _DECLARATION.match(text)
    return text[declaration.end() :] if declaration else text


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def parse_xml(file: Path, found: Detected, *, limit: int) -> Document:
    """The text of all elements, a line for each that holds text itself; HTML that is packed into an element is read as such.

    XML that is not well-formed is read as a web page would be, with a warning.
    """
    with file.open("rb") as stream:
        declared = _DECLARED.search(stream.read(512))
    text, decoding = read_text(file, found.charset or (declared[1].decode("ascii") if declared else None), limit=limit)
    builder = TextBuilder(limit)
    for warning in decoding.warnings:
        builder.warn(warning)
    collector = _Collector(builder)
    try:
        walk(text, start=collector.start, end=collector.end, data=collector.data)
    except PoisonError as error:
        builder = TextBuilder(limit)
        builder.warn(error.reason)
        collector = _Collector(builder)
        add_page(builder, _without_declaration(text))
    return Document(media_type=found.media_type, title=collector.title, encoding=decoding.encoding, blocks=builder.blocks())


class _Collector:
    """Text of elements, in order; the first element named `title` gives the document's."""

    def __init__(self, builder: TextBuilder) -> None:
        self.title: str | None = None
        self._builder = builder
        self._parts: list[str] = []

    def start(self, _name: str, _attributes: dict[str, str]) -> None:
        self._flush("")

    def data(self, text: str) -> None:
        self._parts.append(text)

    def end(self, name: str) -> None:
        self._flush(name)

    def _flush(self, name: str) -> None:
        text = "".join(self._parts).strip()
        self._parts.clear()
        if not text:
            return
        if len(_MARKUP.findall(text, 0, 10_000)) > 1:
            add_page(self._builder, text)
            self._builder.add("\n\n")
        else:
            line = normalize(text)
            if name == "title" and self.title is None:
                self.title = " ".join(line.split())[:300]
            self._builder.add(line + "\n")
