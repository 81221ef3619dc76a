"""An OData `$filter` and the fields of an index in; a test of documents, or the error that Azure AI Search would answer, out.

Grammar and rules: https://learn.microsoft.com/azure/search/search-query-odata-filter, `-collection-operators`, `-comparison-operators`,
`-search-in-function` and `search-query-troubleshoot-collection-filters`. There is no third truth value: what is compared with null is
false, but `ne` is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

Test = Callable[[Mapping[str, Any], Any], bool]
"""A document, and the element that a lambda looks at, in; whether the expression is true out."""

MOST_CLAUSES: Final = 1_000
_DEEPEST: Final = 100
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z_][\w.]*)|(?P<sign>[(),:/]))", re.DOTALL
)
_COMPARISONS: Final = frozenset({"eq", "ne", "gt", "lt", "ge", "le"})
_RESERVED: Final = _COMPARISONS | {"and", "or", "not", "any", "all", "true", "false", "null"}


class ODataError(Exception):
    """What the service answers with 400."""


@dataclass(frozen=True)
class _Lambda:
    variable: str
    kind: str
    """`any` or `all`."""


def compiled(text: str, fields: Mapping[str, Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bool]:
    """The test; raises `ODataError`."""
    parser = _Parser(text, fields)
    test = parser.whole()
    return lambda document: test(document, None)


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self._fields = fields
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._clauses = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise ODataError(f"Invalid expression: Syntax error at position {position}")
            self._tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            position = found.end()

    def whole(self) -> Test:
        test = self._or(None, 0)
        if self._at < len(self._tokens):
            self._fail("an operator or the end")
        if self._clauses > MOST_CLAUSES:
            raise ODataError("Invalid expression: the filter has too many clauses")
        return test

    def _or(self, scope: _Lambda | None, depth: int) -> Test:
        if depth > _DEEPEST:
            raise ODataError("Invalid expression: Recursion depth exceeded allowed limit.")
        parts = [self._and(scope, depth)]
        while self._accept("or"):
            if scope is not None and scope.kind == "all":
                raise ODataError("Invalid lambda expression: 'or' is not supported in 'all' over strings")
            parts.append(self._and(scope, depth))
        return parts[0] if len(parts) == 1 else lambda document, element: any(part(document, element) for part in parts)

    def _and(self, scope: _Lambda | None, depth: int) -> Test:
        parts = [self._not(scope, depth)]
        while self._accept("and"):
            if scope is not None and scope.kind == "any":
                raise ODataError("Invalid lambda expression: 'and' is not supported in 'any' over strings")
            parts.append(self._not(scope, depth))
        return parts[0] if len(parts) == 1 else lambda document, element: all(part(document, element) for part in parts)

    def _not(self, scope: _Lambda | None, depth: int) -> Test:
        if not self._accept("not"):
            return self._primary(scope, depth, negated=False)
        inner = self._primary(scope, depth, negated=True)
        return lambda document, element: not inner(document, element)

    def _primary(self, scope: _Lambda | None, depth: int, *, negated: bool) -> Test:
        if self._accept("("):
            inner = self._or(scope, depth + 1)
            self._expect(")")
            return inner
        self._clauses += 1
        kind, word = self._next()
        if kind != "word":
            self._fail("a field")
        if word in {"true", "false"}:
            return lambda document, element, value=word == "true": value  # type: ignore[misc]
        if word == "search.in":
            return self._search_in(scope, negated=negated)
        if self._accept("/"):
            return self._over(word, scope)
        if negated:
            raise ODataError("Invalid expression: A unary operator with an incompatible type was detected: 'not' binds before comparisons")
        return self._comparison(word, scope)

    def _over(self, field: str, scope: _Lambda | None) -> Test:
        if scope is not None:
            raise ODataError("Invalid lambda expression: lambdas are not nested over strings")
        if self._field(field)["type"] != "Collection(Edm.String)":
            raise ODataError(f"Invalid expression: any/all may only be used with a collection, not with '{field}'")
        kind = self._next()[1]
        if kind not in {"any", "all"}:
            self._fail("any or all")
        self._expect("(")
        if kind == "any" and self._accept(")"):
            return lambda document, element: bool(document.get(field))
        variable = self._next()[1]
        if variable in self._fields or variable in _RESERVED:
            raise ODataError(f"Invalid lambda expression: the variable '{variable}' is taken")
        self._expect(":")
        inner = self._or(_Lambda(variable, kind), 0)
        self._expect(")")
        if kind == "any":
            return lambda document, element: any(inner(document, one) for one in document.get(field) or ())
        return lambda document, element: all(inner(document, one) for one in document.get(field) or ())

    def _search_in(self, scope: _Lambda | None, *, negated: bool) -> Test:
        if scope is not None and negated != (scope.kind == "all"):
            raise ODataError("Invalid lambda expression: 'any' takes search.in, 'all' takes not search.in")
        self._expect("(")
        value = self._variable(self._next()[1], scope)
        self._expect(",")
        listed, delimiters = self._string(), " ,"
        if self._accept(","):
            delimiters = self._string()
        self._expect(")")
        if not delimiters:
            raise ODataError("Invalid expression: search.in needs a delimiter")
        values = {one for one in re.split(f"[{re.escape(delimiters)}]", listed) if one}
        return lambda document, element: value(document, element) in values

    def _comparison(self, word: str, scope: _Lambda | None) -> Test:
        value = self._variable(word, scope)
        kind = "Edm.String" if scope is not None else self._field(word)["type"]
        operator = self._next()[1]
        if operator not in _COMPARISONS:
            self._fail("a comparison")
        wanted = self._literal(kind)
        if kind == "Edm.String" and operator not in {"eq", "ne"}:
            raise ODataError(f"Invalid expression: the operator '{operator}' is not defined for Edm.String")
        if scope is not None and (operator == "eq") != (scope.kind == "any"):
            raise ODataError(f"Invalid lambda expression: '{operator}' is not supported in '{scope.kind}' over strings")
        return lambda document, element: _compare(operator, value(document, element), wanted)

    def _variable(self, word: str, scope: _Lambda | None) -> Callable[[Mapping[str, Any], Any], Any]:
        if scope is not None:
            if word != scope.variable:
                raise ODataError(f"Invalid lambda expression: found a free variable '{word}'; only '{scope.variable}' is bound")
            return lambda _, element: element
        if self._field(word)["type"].startswith("Collection"):
            raise ODataError(f"Invalid expression: the collection '{word}' needs any or all")
        return lambda document, _: document.get(word)

    def _field(self, name: str) -> Mapping[str, Any]:
        field = self._fields.get(name)
        if field is None:
            raise ODataError(f"Invalid expression: Could not find a property named '{name}' on type 'search.document'.")
        if not field.get("filterable"):
            raise ODataError(f"Invalid expression: '{name}' is not a filterable field.")
        return field

    def _literal(self, kind: str) -> str | int | None:
        token, text = self._next()
        if (token, text) == ("word", "null"):
            return None
        if token == "string" and kind == "Edm.String":
            return text[1:-1].replace("''", "'")
        if token == "number" and kind in {"Edm.Int32", "Edm.Int64"} and "." not in text:
            return int(text)
        raise ODataError(f"Invalid expression: a value of type {kind} cannot be compared with {text[:20]}")

    def _string(self) -> str:
        token, text = self._next()
        if token != "string":
            self._fail("a string")
        return text[1:-1].replace("''", "'")

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            self._fail("more")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][0] != "string" and self._tokens[self._at][1] == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(repr(text))

    def _fail(self, wanted: str) -> NoReturn:
        raise ODataError(f"Invalid expression: Syntax error: expected {wanted} at token {self._at}")


def _compare(operator: str, value: Any, wanted: Any) -> bool:
    if operator in {"eq", "ne"}:
        return bool(value == wanted) == (operator == "eq")
    if value is None or wanted is None:
        return False
    return bool({"gt": value > wanted, "lt": value < wanted, "ge": value >= wanted, "le": value <= wanted}[operator])
