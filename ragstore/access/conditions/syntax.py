"""The text of a condition in, its tree out; or an error that shows the place and what to write instead.

There is no published grammar. This one follows https://learn.microsoft.com/azure/role-based-access-control/conditions-format, the
documentation's examples, and conditions found in public Terraform and Bicep files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NoReturn, cast, get_args

from ragstore.access.conditions.tokens import ConditionError, Token, tokens
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
    Quantifier,
    SubOperationMatches,
    Values,
)
from ragstore.access.conditions.values import OPERATORS

__all__ = ["MAX_BYTES", "MAX_NESTING", "ConditionError", "parse"]

MAX_BYTES: Final = 8192
"""Azure's limit for a condition (https://learn.microsoft.com/azure/role-based-access-control/conditions-faq), in UTF-8."""
MAX_NESTING: Final = 60
"""Parentheses and negations within each other; a negated parenthesis counts once."""

Mixed = Literal["error", "and_first"]

_QUANTIFIERS: Final[Mapping[str, Quantifier]] = {name.upper(): name for name in get_args(Quantifier)}
_OPERATORS: Final[Mapping[str, str]] = {name.upper(): name for name in OPERATORS}
_CONNECTIVES: Final[Mapping[str, Literal["AND", "OR"]]] = {"AND": "AND", "&&": "AND", "OR": "OR", "||": "OR"}
_SHOWN_PART: Final = 60
_SHOWN_FIX: Final = 600

_Part = tuple[Condition, int, int]
"""A condition and the span of text that says it."""


def parse(text: str, *, mixed: Mixed = "error") -> Condition:
    """The tree of a condition.

    AND and OR side by side, without parentheses, are ambiguous by the documentation, and an error; with `mixed="and_first"` AND binds
    tighter. Raises `ConditionError` for what is no condition, is longer than 8192 bytes, or is nested deeper than 60.
    """
    length = len(text.encode("utf-8", "surrogatepass"))
    if length > MAX_BYTES:
        raise ConditionError(
            text, len(text), f"a condition has at most {MAX_BYTES} bytes, and this one {length}; split the assignment in two"
        )
    parser = _Parser(text, mixed)
    condition = parser.alternatives(0)
    parser.finish()
    if mixed == "and_first" and _depth(condition) > MAX_NESTING:
        raise ConditionError(text, 0, f"this is nested deeper than {MAX_NESTING} once AND and OR stand in parentheses; simplify it")
    return condition


class _Parser:
    """Recursive descent over the tokens of one text; `nesting` bounds the recursion."""

    def __init__(self, text: str, mixed: Mixed) -> None:
        self._text = text
        self._mixed = mixed
        self._tokens = list(tokens(text))
        self._next = 0

    def alternatives(self, nesting: int) -> Condition:
        """`unary {AND unary}` or `unary {OR unary}`."""
        parts = [self._part(nesting)]
        connectives: list[tuple[str, Token]] = []
        while connective := _CONNECTIVES.get(self._upper()):
            connectives.append((connective, self._take()))
            parts.append(self._part(nesting))
        kinds = {kind for kind, _ in connectives}
        if not connectives:
            return parts[0][0]
        if len(kinds) == 1:
            return _joined(kinds.pop(), [condition for condition, _, _ in parts])
        groups: list[list[_Part]] = [[parts[0]]]
        for (kind, _), part in zip(connectives, parts[1:], strict=True):
            if kind == "AND":
                groups[-1].append(part)
            else:
                groups.append([part])
        if self._mixed == "error":
            other = next(token for kind, token in connectives if kind != connectives[0][0])
            fix = self._fix(groups)
            raise ConditionError(
                self._text, other.start, f"AND and OR side by side are ambiguous; write parentheses: {fix}, if that is what is meant"
            )
        return _joined("OR", [_joined("AND", [condition for condition, _, _ in group]) for group in groups])

    def finish(self) -> None:
        """Raises `ConditionError` where anything is left."""
        token = self._peek()
        if token.kind == "end":
            return
        problem = "this ) closes nothing; remove it" if token.value == ")" else "the condition has ended here; write AND or OR before more"
        raise ConditionError(self._text, token.start, problem)

    def _part(self, nesting: int) -> _Part:
        start = self._peek().start
        condition = self._unary(nesting)
        return condition, start, self._tokens[self._next - 1].end

    def _unary(self, nesting: int) -> Condition:
        token, word = self._peek(), self._upper()
        negations = 0
        while word in {"NOT", "!"}:
            self._take()
            negations += 1
            word = self._upper()
        if nesting + negations > MAX_NESTING or (word == "(" and nesting + max(negations, 1) > MAX_NESTING):
            raise ConditionError(self._text, token.start, f"this is nested deeper than {MAX_NESTING}; simplify it")
        condition: Condition
        if word == "(":
            condition = self._group(nesting + max(negations, 1))
        elif word == "EXISTS":
            condition = self._exists()
        elif word in {"ACTIONMATCHES", "SUBOPERATIONMATCHES"}:
            condition = self._matches()
        else:
            condition = self._comparison()
        for _ in range(negations):
            condition = Not(condition)
        return condition

    def _group(self, nesting: int) -> Condition:
        opening = self._take()
        condition = self.alternatives(nesting)
        if self._upper() != ")":
            token = self._peek()
            place = f"the ( at character {opening.start + 1} is not closed"
            raise ConditionError(self._text, token.start, f"{place}; write ) here, or AND or OR before more")
        self._take()
        return condition

    def _exists(self) -> Condition:
        self._take()
        token = self._peek()
        if not isinstance(token.value, Attribute):
            raise ConditionError(self._text, token.start, "Exists takes an attribute; write Exists @Resource[...]")
        self._take()
        return Exists(token.value)

    def _matches(self) -> Condition:
        word = self._take()
        made = ActionMatches if str(word.value).upper() == "ACTIONMATCHES" else SubOperationMatches
        pattern = None
        for wanted in ("{", "text", "}"):
            token = self._peek()
            if wanted != (token.value if token.kind == "sign" else token.kind):
                raise ConditionError(self._text, token.start, f"{made.__name__} takes one text in braces; write {made.__name__}{{'...'}}")
            self._take()
            pattern = str(token.value) if token.kind == "text" else pattern
        return made(pattern or "")

    def _comparison(self) -> Condition:
        start = self._peek().start
        left = self._operand("an attribute, a value, (, NOT, Exists, ActionMatches or SubOperationMatches")
        quantifier = _QUANTIFIERS.get(self._upper())
        if quantifier:
            self._take()
            if self._upper() != ":":
                raise ConditionError(self._text, self._peek().start, f"an operator follows; write {quantifier}:StringEquals or the like")
            self._take()
        at = self._peek()
        operator = _OPERATORS.get(self._upper())
        if operator is None:
            self._refuse_operator(quantifier)
        self._take()
        right = self._operand("an attribute or a value to compare with")
        if quantifier and not OPERATORS[operator].takes_quantifier:
            problem = f"{operator} takes no quantifier (String, Numeric and Guid operators do); write {operator} alone"
            raise ConditionError(self._text, at.start, problem)
        if not quantifier and any(isinstance(side, Values) and len(side.items) > 1 for side in (left, right)):
            remedy = "" if not OPERATORS[operator].takes_quantifier else f"; write ForAnyOfAnyValues:{operator}, or another quantifier"
            raise ConditionError(self._text, start, f"{operator} alone compares with one value, and this set has several{remedy}")
        return Comparison(left=left, operator=operator, right=right, quantifier=quantifier)

    def _operand(self, wanted: str) -> Operand:
        token = self._peek()
        if isinstance(token.value, Attribute):
            self._take()
            return token.value
        if token.kind == "sign" and token.value == "{":
            return self._set()
        return self._literal(wanted, braces=False)

    def _set(self) -> Values:
        self._take()
        items = [self._literal("a value", braces=True)]
        while self._upper() == ",":
            self._take()
            items.append(self._literal("a value", braces=True))
        if self._upper() != "}":
            raise ConditionError(self._text, self._peek().start, "the set is not closed; write , before another value, or }")
        self._take()
        return Values(tuple(items))

    def _literal(self, wanted: str, *, braces: bool) -> Constant:
        token, word = self._peek(), self._upper()
        if token.kind == "guid" and not braces:
            raise ConditionError(self._text, token.start, f"a GUID outside braces takes quotes; write '{token.value}'")
        if token.kind in {"text", "number", "guid"}:
            self._take()
            return Constant(cast("str | int", token.value), bare=token.kind == "guid")
        if token.kind == "word" and word in {"TRUE", "FALSE"}:
            self._take()
            return Constant(word == "TRUE")
        found = "the end" if token.kind == "end" else ascii(self._text[token.start : token.end])
        raise ConditionError(self._text, token.start, f"here stands {found}; write {wanted} (text takes single quotes)")

    def _refuse_operator(self, quantifier: Quantifier | None) -> NoReturn:
        token = self._peek()
        following = self._tokens[self._next + 1].value if token.kind != "end" else ""
        quantified = not quantifier and following == ":"
        known = tuple(_QUANTIFIERS.values() if quantified else OPERATORS)
        kind = "quantifier" if quantified else "operator"
        if token.kind != "word":
            raise ConditionError(self._text, token.start, "an operator is missing; write StringEquals or another")
        near = difflib.get_close_matches(str(token.value), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"write {known[0]} or another"
        raise ConditionError(self._text, token.start, f"{token.value!a} is no {kind}; {hint}")

    def _fix(self, groups: Sequence[Sequence[_Part]]) -> str:
        """The groups of AND in parentheses, whole where that is short enough to be read."""
        whole = [[self._text[start:end] for _, start, end in group] for group in groups]
        if sum(len(part) for group in whole for part in group) > _SHOWN_FIX:
            whole = [[part if len(part) <= _SHOWN_PART else f"{part[:_SHOWN_PART]}..." for part in group] for group in whole]
        return " OR ".join(f"({' AND '.join(group)})" if len(group) > 1 else group[0] for group in whole)

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _upper(self) -> str:
        """The next word or sign, without case; empty for anything else."""
        token = self._peek()
        return str(token.value).upper() if token.kind in {"word", "sign"} else ""

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token


def _joined(kind: str, parts: Sequence[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]
    return And(tuple(parts)) if kind == "AND" else Or(tuple(parts))


def _depth(condition: Condition) -> int:
    """How deep the printed text is nested; a negated group counts once, as in the parser."""
    match condition:
        case And() | Or():
            return max(_depth(part) + isinstance(part, And | Or) for part in condition.parts)
        case Not():
            return 1 + _depth(condition.part)
        case _:
            return 0
