"""A condition and a context in, the tree of its clauses out, each with its truth and with the values it saw: for `explain`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ragstore.access.conditions.evaluation import evaluate, value_of, values_of
from ragstore.access.conditions.printing import operand_text, to_text, truth_text
from ragstore.access.conditions.tree import (
    ActionMatches,
    And,
    Attribute,
    AttributeValue,
    Comparison,
    Condition,
    Context,
    Exists,
    Known,
    Not,
    Or,
    SubOperationMatches,
    Truth,
)
from ragstore.access.conditions.values import OPERATORS, typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an attribute, `action` or `suboperations` was when the clause was evaluated; None is missing."""

    name: str
    value: AttributeValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One node of a condition. It may name paths, tags and principals: for whoever may see the policy, never for whoever was refused."""

    text: str
    truth: Truth
    seen: tuple[Seen, ...] = ()
    why: str = ""
    """Of a comparison that is unknown: what made it so."""
    parts: tuple[Clause, ...] = ()
    joined: str = ""
    """`AND`, `OR` or `NOT` where there are parts."""

    def as_dict(self) -> dict[str, object]:
        """Plain JSON values; `truth` is `true`, `false` or `unknown`, and a value that is missing is null."""
        found: dict[str, object] = {"text": self.text, "truth": truth_text(self.truth)}
        if self.seen:
            found["seen"] = {seen.name: list(seen.value) if isinstance(seen.value, tuple) else seen.value for seen in self.seen}
        if self.why:
            found["why"] = self.why
        if self.parts:
            found["joined"] = self.joined
            found["parts"] = [part.as_dict() for part in self.parts]
        return found


def trace(condition: Condition, context: Context) -> Clause:
    """The clauses of a condition with what they are in this context. `trace(...).truth` is `evaluate(...)`."""
    match condition:
        case And() | Or():
            return _node("AND" if isinstance(condition, And) else "OR", condition, condition.parts, context)
        case Not():
            return _node("NOT", condition, (condition.part,), context)
        case Comparison():
            attributes = (side for side in (condition.left, condition.right) if isinstance(side, Attribute))
            truth = evaluate(condition, context)
            why = _why_unknown(condition, context) if truth is None else ""
            return Clause(text=to_text(condition), truth=truth, seen=_seen(attributes, context), why=why)
        case Exists():
            return Clause(text=to_text(condition), truth=evaluate(condition, context), seen=_seen([condition.attribute], context))
        case ActionMatches():
            return Clause(text=to_text(condition), truth=evaluate(condition, context), seen=(Seen(name="action", value=context.action),))
        case SubOperationMatches():
            given = Seen(name="suboperations", value=tuple(sorted(context.suboperations)))
            return Clause(text=to_text(condition), truth=evaluate(condition, context), seen=(given,))
        case Known():
            return Clause(text=to_text(condition), truth=condition.truth)


def deciding(clause: Clause) -> list[Clause]:
    """The clauses without parts that make this one what it is: of an OR that is true, for one, those that are true."""
    if not clause.parts:
        return [clause]
    if clause.joined == "NOT":
        return deciding(clause.parts[0])
    return [leaf for part in clause.parts if part.truth is clause.truth for leaf in deciding(part)]


def _node(joined: str, condition: Condition, parts: Iterable[Condition], context: Context) -> Clause:
    traced = tuple(trace(part, context) for part in parts)
    return Clause(text=to_text(condition), truth=evaluate(condition, context), parts=traced, joined=joined)


def _seen(attributes: Iterable[Attribute], context: Context) -> tuple[Seen, ...]:
    return tuple(Seen(name=operand_text(attribute), value=value_of(attribute, context)) for attribute in attributes)


def _why_unknown(comparison: Comparison, context: Context) -> str:
    sides = [(operand_text(side), values_of(side, context)) for side in (comparison.left, comparison.right)]
    for text, values in sides:
        if values is None:
            return "a value is missing" if text == "missing" else f"{text} is missing"
        if not values:
            return f"{text} holds no value"
        if comparison.quantifier is None and len(values) > 1:
            return f"{text} holds {len(values)} values, and {comparison.operator} without a quantifier compares one"
    meaning = OPERATORS[comparison.operator]
    found = ((text, value) for text, values in sides for value in values or () if typed(meaning, value) is None)
    return next(f"{text} holds {value!r}, which is no {meaning.noun}" for text, value in found)
