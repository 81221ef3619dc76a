"""A condition in, its text out, in the documentation's spelling; parsed again it is the same condition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ragstore.access.conditions.syntax import MAX_BYTES
from ragstore.access.conditions.tree import (
    ActionMatches,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Exists,
    Known,
    Missing,
    Not,
    Operand,
    Or,
    SubOperationMatches,
    Truth,
    Values,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spelling:
    """How much room the words take."""

    conjunction: str
    disjunction: str
    negation: str
    comma: str
    space: str


_WORDS: Final = _Spelling(conjunction=" AND ", disjunction=" OR ", negation="NOT ", comma=", ", space=" ")
_SIGNS: Final = _Spelling(conjunction="&&", disjunction="||", negation="!", comma=",", space="")


def to_text(condition: Condition) -> str:
    """The text of a condition: `parse(to_text(condition)) == condition` for whatever `parse` returns without `and_first`.

    Written with signs and without spaces where it would be longer than Azure allows otherwise. What partial evaluation puts into a tree
    has words that do not parse: `true`, `false`, `unknown` alone for a condition, `missing` for a value.
    """
    text = _condition(condition, _WORDS)
    return text if len(text.encode("utf-8", "surrogatepass")) <= MAX_BYTES else _condition(condition, _SIGNS)


def operand_text(operand: Operand) -> str:
    """The text of one side of a comparison."""
    return _operand(operand, _WORDS)


def truth_text(truth: Truth) -> str:
    """`true`, `false` or `unknown`."""
    return "unknown" if truth is None else str(truth).lower()


def _condition(condition: Condition, spelling: _Spelling) -> str:
    match condition:
        case And():
            return _joined(condition.parts, spelling.conjunction, spelling)
        case Or():
            return _joined(condition.parts, spelling.disjunction, spelling)
        case Not():
            inner = _condition(condition.part, spelling)
            bare = isinstance(condition.part, Not | Exists | ActionMatches | SubOperationMatches | Known)
            # `!x StringEquals 'a'` reads as if it negated x: parentheses, unless every character counts.
            return spelling.negation + (inner if bare or (not spelling.space and isinstance(condition.part, Comparison)) else f"({inner})")
        case Comparison():
            return _comparison(condition, spelling)
        case Exists():
            return f"Exists{spelling.space}{_attribute(condition.attribute)}"
        case ActionMatches():
            return f"ActionMatches{{{_quoted(condition.pattern)}}}"
        case SubOperationMatches():
            return f"SubOperationMatches{{{_quoted(condition.pattern)}}}"
        case Known():
            return truth_text(condition.truth)


def _joined(parts: Iterable[Condition], connective: str, spelling: _Spelling) -> str:
    texts = ((part, _condition(part, spelling)) for part in parts)
    return connective.join(f"({text})" if isinstance(part, And | Or) else text for part, text in texts)


def _comparison(comparison: Comparison, spelling: _Spelling) -> str:
    operator = comparison.operator if comparison.quantifier is None else f"{comparison.quantifier}:{comparison.operator}"
    left, right = _operand(comparison.left, spelling), _operand(comparison.right, spelling)
    before = " " if left[-1].isalnum() else spelling.space
    after = " " if right[0].isalnum() else spelling.space
    return f"{left}{before}{operator}{after}{right}"


def _operand(operand: Operand, spelling: _Spelling) -> str:
    match operand:
        case Attribute():
            return _attribute(operand)
        case Constant():
            return _constant(operand)
        case Values():
            return f"{{{spelling.comma.join(_constant(item) for item in operand.items)}}}"
        case Missing():
            return "missing"


def _attribute(attribute: Attribute) -> str:
    return f"@{attribute.source}[{attribute.name}]"


def _constant(constant: Constant) -> str:
    if isinstance(constant.value, bool):
        return str(constant.value).lower()
    if isinstance(constant.value, int):
        return str(constant.value)
    return constant.value if constant.bare else _quoted(constant.value)


def _quoted(text: str) -> str:
    r"""In single quotes. After a backslash a quote is written `\'`, because `''` there would be that and the end."""
    written: list[str] = []
    for position, character in enumerate(text):
        escaped = "\\'" if position and text[position - 1] == "\\" else "''"
        written.append(escaped if character == "'" else character)
    return f"'{''.join(written)}'"
