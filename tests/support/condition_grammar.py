"""The text of a condition in, its tree out, by a grammar of its own: what the parser of ragstore is compared with.

Written from the EBNF, for Lark's LALR parser, with regular expressions of its own and nothing of ragstore but the tree. Length and nesting
are not limited here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError

from ragstore.access.conditions.tree import (
    ActionMatches,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Exists,
    Not,
    Operand,
    Or,
    SubOperationMatches,
    Values,
)

GRAMMAR: Final = r"""
start: expression
?expression: unary
    | unary (_AND unary)+   -> conjunction
    | unary (_OR unary)+    -> disjunction
?unary: _NOT unary          -> negation
    | "(" expression ")"
    | _EXISTS ATTRIBUTE     -> exists
    | _ACTION "{" TEXT "}"  -> action
    | _SUBOP "{" TEXT "}"   -> suboperation
    | comparison
comparison: operand [QUANTIFIER ":"] OPERATOR operand
?operand: attribute | literal | set
attribute: ATTRIBUTE
set: "{" (literal | bare) ("," (literal | bare))* "}"
bare: GUID
literal: TEXT | NUMBER | BOOLEAN

_AND.2: /(?:AND(?![A-Za-z0-9_])|&&)/i
_OR.2: /(?:OR(?![A-Za-z0-9_])|\|\|)/i
_NOT.2: /(?:NOT(?![A-Za-z0-9_])|!)/i
_EXISTS.2: /EXISTS(?![A-Za-z0-9_])/i
_ACTION.2: /ACTIONMATCHES(?![A-Za-z0-9_])/i
_SUBOP.2: /SUBOPERATIONMATCHES(?![A-Za-z0-9_])/i
BOOLEAN.2: /(?:TRUE|FALSE)(?![A-Za-z0-9_])/i
QUANTIFIER.2: /For(?:Any|All)Of(?:Any|All)Values(?![A-Za-z0-9_])/i
OPERATOR.2: _OF_STRINGS | _OF_ORDER | _OF_EQUALITY
_OF_STRINGS: /String(?:Not)?(?:Equals|StartsWith|Like)(?:IgnoreCase)?(?![A-Za-z0-9_])/i
_OF_ORDER: /(?:Numeric|DateTime)(?:(?:Not)?Equals|(?:Less|Greater)Than(?:Equals)?)(?![A-Za-z0-9_])/i
_OF_EQUALITY: /(?:Bool|Guid)(?:Not)?Equals(?![A-Za-z0-9_])/i
ATTRIBUTE: _SOURCE "[" _ROOM? _PATH (_KEY | _KEYS)? _ROOM? "]"
_SOURCE: /@(?:environment|principal|request|resource)/i
_ROOM: /[ \t\r\n\u00a0]+/
_PATH: /[\w +\-.=\/]+/
_KEY: /:[\w +\-.:=\/]+(?:<\$key_case_sensitive\$>)?/i
_KEYS: /&\$keys\$&/i
TEXT: /'(?:''|\\'|\\(?!')|[^'\\])*'(?!')/
GUID.3: /[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w.\-])/
NUMBER.1: /-?[0-9]+(?![\w.\-])/
SPACE: /[ \t\r\n\u00a0]+/
%ignore SPACE
"""


class RefusedError(Exception):
    """The text is no condition by this grammar."""


def parse(text: str) -> Condition:
    """The tree; raises `RefusedError`."""
    try:
        return _Tree().transform(_parser().parse(text))
    except LarkError as error:
        raise RefusedError(str(error)) from error


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=True)


@v_args(inline=True)
class _Tree(Transformer[Token, Condition]):
    def start(self, condition: Condition) -> Condition:
        return condition

    def conjunction(self, *parts: Condition) -> Condition:
        return And(parts)

    def disjunction(self, *parts: Condition) -> Condition:
        return Or(parts)

    def negation(self, part: Condition) -> Condition:
        return Not(part)

    def exists(self, attribute: Token) -> Condition:
        return Exists(_attribute(attribute))

    def action(self, pattern: Token) -> Condition:
        return ActionMatches(_text(pattern))

    def suboperation(self, pattern: Token) -> Condition:
        return SubOperationMatches(_text(pattern))

    def comparison(self, left: Operand, quantifier: Token | None, operator: Token, right: Operand) -> Condition:
        several = any(isinstance(side, Values) and len(side.items) > 1 for side in (left, right))
        if quantifier is None and several:
            raise LarkError("several values without a quantifier")
        if quantifier is not None and operator.lower().startswith(("bool", "datetime")):
            raise LarkError("a quantifier with an operator that takes none")
        return Comparison(
            left=left,
            operator=_spelled(operator),
            right=right,
            quantifier=_spelled(quantifier) if quantifier else None,  # type: ignore[arg-type]  # one of four
        )

    def attribute(self, token: Token) -> Attribute:
        return _attribute(token)

    def set(self, *items: Constant) -> Values:
        return Values(items)

    def bare(self, token: Token) -> Constant:
        return Constant(str(token), bare=True)

    def literal(self, token: Token) -> Constant:
        if token.type == "TEXT":
            return Constant(_text(token))
        if token.type == "BOOLEAN":
            return Constant(token.lower() == "true")
        if not -(2**63) <= int(token) <= 2**63 - 1:
            raise LarkError("more than 64 bits")
        return Constant(int(token))


def _text(token: Token) -> str:
    return re.sub(r"\\'|''", "'", token[1:-1])


_NAMES: Final = """
ForAnyOfAnyValues ForAllOfAnyValues ForAnyOfAllValues ForAllOfAllValues
StringEquals StringNotEquals StringEqualsIgnoreCase StringNotEqualsIgnoreCase
StringStartsWith StringNotStartsWith StringStartsWithIgnoreCase StringNotStartsWithIgnoreCase
StringLike StringNotLike StringLikeIgnoreCase StringNotLikeIgnoreCase
NumericEquals NumericNotEquals NumericLessThan NumericLessThanEquals NumericGreaterThan NumericGreaterThanEquals
DateTimeEquals DateTimeNotEquals DateTimeLessThan DateTimeLessThanEquals DateTimeGreaterThan DateTimeGreaterThanEquals
BoolEquals BoolNotEquals GuidEquals GuidNotEquals
"""
_SPELLED: Final = {word.lower(): word for word in _NAMES.split()}


def _spelled(token: Token) -> str:
    return _SPELLED[token.lower()]


def _attribute(token: Token) -> Attribute:
    source, name = token[1:-1].split("[", 1)
    name = name.strip(" \t\r\n\u00a0")
    path, colon, key = name.partition(":")
    sensitive = key.lower().endswith("<$key_case_sensitive$>")
    keys = not colon and path.lower().endswith("&$keys$&")
    return Attribute(
        source=source.capitalize(),  # type: ignore[arg-type]  # one of four
        path=path[:-8] if keys else path,
        key=(key[:-22] if sensitive else key) if colon else None,
        case_sensitive=sensitive,
        keys=keys,
    )
