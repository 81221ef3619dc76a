"""The text of a user's filter in, its tree out; an error shows where it is and how to mend it.

    tag.department = 'hr' and (path starts with 'reports/' or media_type in ('text/markdown', 'application/pdf'))
    not metadata.level >= 3        tag['cost center'] exists        container != 'drafts'        tag.owner not in ('ann', 'bob')

Text stands in single quotes, a quote inside it is doubled, and every other character stands for itself. Keywords have no case, tag keys
have. `not` binds tighter than `and`, `and` tighter than `or`. A number without quotes is compared as a number, text as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, cast

from ragstore.errors import QueryError
from ragstore.retrieval.expression import (
    Attribute,
    AttributeKind,
    Begins,
    Comparison,
    Either,
    Equals,
    Every,
    Exists,
    Expression,
    Negation,
    Numeric,
)

MAX_LENGTH: Final = 8192
"""Bytes of UTF-8: the limit of an Azure condition as well."""
MAX_DEPTH: Final = 60
"""Of parentheses and `not` within each other."""

_ATTRIBUTES: Final = ("account", "container", "path", "media_type", "tag", "metadata")
_SHOWN: Final = 40
"""Characters of the filter in a message."""

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<text>'(?:[^']|'')*'(?!'))
      | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?![\w.]))
      | (?P<word>[^\W\d][\w-]*)
      | (?P<sign><=|>=|!=|[=<>().,\[\]])
      | (?P<end>\Z)
      )""",
    re.VERBOSE,
)

Kind = Literal["text", "number", "word", "sign", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: Kind
    text: str
    """As written; of a quoted text what it means."""
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs


def parse(text: str) -> Expression:
    """The tree of this filter. Raises `QueryError`, and nothing else, for text that is no filter, is too long or nested too deep."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_LENGTH:
        raise QueryError(f"the filter is longer than {MAX_LENGTH} bytes: use fewer values, or a prefix (`path starts with '...'`)")
    return _Parser(text).whole()


class _Parser:
    """Recursive descent over the tokens of one text; `_depth` keeps it far from the interpreter's own limit."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._index = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._either()
        if self._next.kind != "end":
            raise self._error("expected 'and', 'or' or the end", "join two comparisons with 'and' or 'or'")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].kind != "end":
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._unknown(at)
            kind = cast("Kind", found.lastgroup)
            written = found[kind]
            meaning = written[1:-1].replace("''", "'") if kind == "text" else written
            tokens.append(_Token(kind=kind, text=meaning, at=found.start(kind)))
            at = found.end()
        return tokens

    def _either(self) -> Expression:
        parts = [self._every()]
        while self._next.is_word("or"):
            self._take()
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(parts=tuple(parts))

    def _every(self) -> Expression:
        parts = [self._unary()]
        while self._next.is_word("and"):
            self._take()
            parts.append(self._unary())
        return parts[0] if len(parts) == 1 else Every(parts=tuple(parts))

    def _unary(self) -> Expression:
        negated = self._next.is_word("not")
        if not negated and not self._next.is_sign("("):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} levels of parentheses and 'not'", "write the filter flatter")
        self._take()
        if negated:
            found: Expression = Negation(part=self._unary())
        else:
            found = self._either()
            self._expect(")", "close the parenthesis")
        self._depth -= 1
        return found

    def _comparison(self) -> Expression:
        attribute = self._attribute()
        token = self._next
        if token.is_word("exists"):
            self._take()
            return Exists(attribute=attribute)
        if token.is_word("starts"):
            return self._begins(attribute)
        if token.is_word("in", "not"):
            return self._membership(attribute)
        if token.is_sign("=", "!="):
            self._take()
            found = self._equal(attribute, [self._value()])
            return Negation(part=found) if token.text == "!=" else found
        if token.is_sign("<", "<=", ">", ">="):
            self._take()
            if self._next.kind != "number":
                raise self._error(f"expected a number after {token.text!r}", "write it without quotes: metadata.level >= 3")
            return Numeric(attribute=attribute, comparison=cast("Comparison", token.text), number=Decimal(self._take().text))
        raise self._error("expected a comparison", "use =, !=, <, <=, >, >=, in, not in, starts with or exists")

    def _begins(self, attribute: Attribute) -> Expression:
        self._take()
        if not self._next.is_word("with"):
            raise self._error("expected 'with' after 'starts'", "write: path starts with 'reports/'")
        self._take()
        if self._next.kind != "text":
            raise self._error("expected a text after 'starts with'", "put it in single quotes: 'reports/'")
        return Begins(attribute=attribute, prefix=self._take().text)

    def _membership(self, attribute: Attribute) -> Expression:
        negated = self._take().is_word("not")
        if negated:
            if not self._next.is_word("in"):
                raise self._error(
                    "expected 'in' after 'not'", "write: tag.owner not in ('ann', 'bob'); a negation stands first: not tag.owner exists"
                )
            self._take()
        self._expect("(", "list the values in parentheses: ('ann', 'bob')")
        values = [self._value()]
        while self._next.is_sign(","):
            self._take()
            values.append(self._value())
        self._expect(")", "separate the values by commas and close the parenthesis")
        found = self._equal(attribute, values)
        return Negation(part=found) if negated else found

    def _attribute(self) -> Attribute:
        token = self._next
        if token.kind != "word" or token.text.lower() not in _ATTRIBUTES:
            raise self._error("expected an attribute", f"one of {', '.join(_ATTRIBUTES[:4])}, tag.KEY, metadata.KEY")
        self._take()
        kind = cast("AttributeKind", token.text.lower())
        if kind not in {"tag", "metadata"}:
            return Attribute(kind=kind)
        if self._next.is_sign("."):
            self._take()
            if self._next.kind != "word":
                raise self._error("expected a key after '.'", f"a key with odd characters is written {kind}['my key']")
            key = self._take().text
        else:
            self._expect("[", f"name the key: {kind}.KEY or {kind}['my key']")
            if self._next.kind != "text":
                raise self._error("expected a key in single quotes", f"write {kind}['my key']")
            key = self._take().text
            self._expect("]", f"close the bracket: {kind}['my key']")
        return Attribute(kind=kind, key=key.lower() if kind == "metadata" else key)

    def _value(self) -> str | Decimal:
        token = self._next
        if token.kind not in {"text", "number"}:
            raise self._error("expected a value", "text stands in single quotes ('hr'), a number without")
        self._take()
        return token.text if token.kind == "text" else Decimal(token.text)

    def _equal(self, attribute: Attribute, values: list[str | Decimal]) -> Expression:
        """Texts are one comparison; each number is its own, because "2.0" and "2" are the same number."""
        texts = frozenset(value for value in values if isinstance(value, str))
        parts: list[Expression] = [Equals(attribute=attribute, values=texts)] if texts else []
        parts += [Numeric(attribute=attribute, comparison="=", number=value) for value in values if isinstance(value, Decimal)]
        return parts[0] if len(parts) == 1 else Either(parts=tuple(parts))

    def _expect(self, sign: str, remedy: str) -> None:
        if not self._next.is_sign(sign):
            raise self._error(f"expected {sign!r}", remedy)
        self._take()

    def _error(self, problem: str, remedy: str) -> QueryError:
        return QueryError(_message(self._text, self._next.at, problem, remedy))

    def _unknown(self, at: int) -> QueryError:
        """Nothing that we know begins here: name the usual reasons."""
        at = len(self._text) - len(self._text[at:].lstrip(" \t\r\n"))
        character = self._text[at]
        if character == "'":
            problem, remedy = "a text that does not end", "close it with a single quote; a quote inside the text is doubled: 'it''s'"
        elif character in '"`\u2018\u2019\u201c\u201d':
            problem, remedy = f"{character!a} quotes nothing", "text stands in single quotes: 'hr'"
        elif character.isdigit() or character in "+-":
            problem, remedy = "a malformed number", "write 3, -3 or 3.5, and put anything else in single quotes"
        else:
            problem, remedy = f"unexpected {character!a}", "a key with odd characters is written tag['my key']"
        return QueryError(_message(self._text, at, problem, remedy))


def _message(text: str, at: int, problem: str, remedy: str) -> str:
    """The problem, its place with the words that stand there, and the remedy: one line, as every error."""
    if at >= len(text):
        return f"filter: {problem} at the end: {remedy}"
    rest = "".join(character if character.isprintable() else "\u00b7" for character in text[at : at + _SHOWN])
    return f"filter: {problem} at character {at + 1}, before >>{rest}{'...' if at + _SHOWN < len(text) else ''}<<: {remedy}"
