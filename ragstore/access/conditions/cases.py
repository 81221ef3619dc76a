"""Cases in JSON in, those that fail out: what a condition must say of a resource, as one tests code.

A case is an object: `condition` in the language of Azure; `action`, `suboperations`, `resource`, `request`, `principal` and `environment`,
all of which may be left out; and what is expected, `kleene` ("true", "false", "unknown"), `decision` ("allow", "deny") or both. Attributes
go by their names in the condition's brackets, tags under `tags` of the resource and of the request. Other fields are remarks, unless they
look like a misspelling of one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from ragstore.access.conditions.printing import truth_text
from ragstore.access.conditions.syntax import ConditionError, parse
from ragstore.access.conditions.tracing import Clause, deciding, trace
from ragstore.access.conditions.tree import READ_ACTION, READ_SUBOPERATIONS, AttributeValue, Context, Scalar
from ragstore.errors import ConfigError

Kleene = Literal["true", "false", "unknown"]
Decision = Literal["allow", "deny"]

_FIELDS: Final = ("id", "condition", "action", "suboperations", "resource", "request", "principal", "environment", "kleene", "decision")
_REMARKS: Final = frozenset({"condition_id", "source", "description"})
_KLEENE: Final = ("true", "false", "unknown")
_DECISIONS: Final = ("allow", "deny")
_SHOWN_CLAUSES: Final = 5
_NEAR: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A condition's text, what it is evaluated against, and what it must say; at least one of the last two."""

    id: str
    condition: str
    context: Context
    kleene: Kleene | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that does not say what it must. `expected` and `got` are in the same words."""

    id: str
    expected: str
    got: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        """Plain JSON values."""
        return {"id": self.id, "expected": self.expected, "got": self.got, "reason": self.reason}


def run_cases(entries: Iterable[object]) -> list[Failure]:
    """The cases that fail, in their order; one whose condition does not parse fails, whatever it expects.

    Raises `ConfigError` for an ill-formed case, and names it.
    """
    cases = [load_case(entry, number=number) for number, entry in enumerate(entries, 1)]
    return [failure for case in cases if (failure := run_case(case)) is not None]


def run_case(case: Case) -> Failure | None:
    """How the case fails; None where it passes."""
    expected = ", ".join(part for part in (case.kleene, case.decision) if part)
    try:
        clause = trace(parse(case.condition), case.context)
    except ConditionError as error:
        return Failure(id=case.id, expected=expected, got="error", reason=str(error))
    kleene = truth_text(clause.truth)
    decision = "allow" if clause.truth is True else "deny"
    if case.kleene in {None, kleene} and case.decision in {None, decision}:
        return None
    got = ", ".join(part for part, asked in ((kleene, case.kleene), (decision, case.decision)) if asked)
    return Failure(id=case.id, expected=expected, got=got, reason=_reason(clause))


def load_case(entry: object, *, number: int = 1) -> Case:
    """A case as JSON gives it. Lists become tuples, and an attribute that is null is missing.

    `number` counts from 1 and names a case that has no id. Raises `ConfigError` for what is no case.
    """
    if not isinstance(entry, Mapping):
        raise ConfigError(f"case {number} is a {type(entry).__name__}; write an object with condition, resource, decision and so on")
    fields = cast("Mapping[str, object]", entry)
    name = str(fields.get("id", f"number {number}"))
    for field in fields:
        near = [] if field in _FIELDS or field in _REMARKS else difflib.get_close_matches(str(field), _FIELDS, n=1, cutoff=_NEAR)
        if near:
            raise ConfigError(f"case {name} has no field {field!r}; did you mean {near[0]!r}?")
    condition = fields.get("condition")
    if not isinstance(condition, str):
        raise ConfigError(f"case {name} has no condition; write its text under 'condition'")
    kleene, decision = _expected(fields, name)
    resource, tags = _attributes(fields, "resource", name)
    request, request_tags = _attributes(fields, "request", name)
    action = fields.get("action", READ_ACTION)
    if not isinstance(action, str):
        raise ConfigError(f"case {name}: 'action' is no text; write the data action, or leave it out for a read")
    context = Context(
        action=action,
        suboperations=_suboperations(fields, name),
        resource=resource,
        tags=tags,
        request=request,
        request_tags=request_tags,
        principal=_attributes(fields, "principal", name)[0],
        environment=_attributes(fields, "environment", name)[0],
    )
    return Case(id=name, condition=condition, context=context, kleene=kleene, decision=decision)


def _expected(fields: Mapping[str, object], name: str) -> tuple[Kleene | None, Decision | None]:
    kleene, decision = fields.get("kleene"), fields.get("decision")
    if kleene is None and decision is None:
        raise ConfigError(f'case {name} expects nothing; write "decision": "allow" or "deny"')
    for field, value, known in (("kleene", kleene, _KLEENE), ("decision", decision, _DECISIONS)):
        if value is not None and value not in known:
            raise ConfigError(f"case {name}: {field!r} is {value!r}; write one of {', '.join(known)}, in quotes")
    if kleene is not None and decision is not None and (kleene == "true") is not (decision == "allow"):
        raise ConfigError(f"case {name} cannot pass: only true allows, and it expects {kleene} and {decision}; mend one of them")
    return cast("Kleene | None", kleene), cast("Decision | None", decision)


def _suboperations(fields: Mapping[str, object], name: str) -> frozenset[str]:
    given = fields.get("suboperations")
    if given is None:
        return READ_SUBOPERATIONS
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise ConfigError(f"case {name}: 'suboperations' is no list of texts; write [] for none, or leave it out for a read")
    return frozenset(cast("list[str]", given))


def _attributes(fields: Mapping[str, object], field: str, name: str) -> tuple[dict[str, AttributeValue], dict[str, str]]:
    """The attributes of one source, and its tags."""
    given = fields.get(field)
    if given is None:
        return {}, {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"case {name}: {field!r} is no object; write attribute names and their values")
    tagged = field in {"resource", "request"}
    tags = given.get("tags") if tagged else None
    if tags is not None and not (isinstance(tags, Mapping) and all(isinstance(value, str) for value in tags.values())):
        raise ConfigError(f'case {name}: the tags of {field!r} are no object of texts; write {{"KEY": "VALUE"}}')
    others = ((key, value) for key, value in given.items() if value is not None and not (tagged and key == "tags"))
    return {str(key): _value(value, f"case {name}: {key!r} of {field!r}") for key, value in others}, dict(tags or {})


def _value(value: object, place: str) -> AttributeValue:
    if isinstance(value, list):
        return tuple(_scalar(item, place) for item in value)
    return _scalar(value, place)


def _scalar(value: object, place: str) -> Scalar:
    if isinstance(value, str | int):  # a boolean is an int
        return value
    raise ConfigError(f"{place} is a {type(value).__name__}; write text, a whole number, true, false, or a list of these")


def _reason(clause: Clause) -> str:
    """What decided, with the values seen."""
    found = deciding(clause)
    shown = ", ".join(_shown(leaf) for leaf in found[:_SHOWN_CLAUSES])
    return shown + (f", and {len(found) - _SHOWN_CLAUSES} more" if len(found) > _SHOWN_CLAUSES else "")


def _shown(leaf: Clause) -> str:
    details = "; ".join([*([leaf.why] if leaf.why else []), *_values(leaf)])
    return f"{leaf.text} is {truth_text(leaf.truth)}" + (f" ({details})" if details else "")


def _values(leaf: Clause) -> list[str]:
    return [f"{seen.name} = {seen.value!r}" for seen in leaf.seen if seen.value is not None]
