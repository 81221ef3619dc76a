"""A policy file of any kind in; what it is, and what is wrong or doubtful about it, out: for `ragstore policy check`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ragstore.access.azure.assignments import parse_assignments
from ragstore.access.azure.deny import parse_deny_assignments
from ragstore.access.azure.documents import load_json
from ragstore.access.azure.roles import parse_roles
from ragstore.access.conditions.cases import load_case
from ragstore.access.conditions.checks import lint
from ragstore.access.conditions.syntax import ConditionError, parse
from ragstore.access.conditions.tree import Condition
from ragstore.access.principals import parse_principals
from ragstore.access.rules import parse_rules
from ragstore.errors import ConfigError

FileKind = Literal["condition", "role assignments", "role definitions", "deny assignments", "principals", "access rules", "cases"]
Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to look at. An error takes something out of force; a warning is legal, and probably not what was meant."""

    level: Level
    where: str
    """The entry, where the file has several; else empty."""
    problem: str
    remedy: str = ""
    at: int | None = None
    """Character of the condition, counted from 1."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"level": self.level, "where": self.where, "problem": self.problem, "remedy": self.remedy, "at": self.at}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a file is, and what was found in it."""

    kind: FileKind
    entries: int
    problems: tuple[Problem, ...]

    @property
    def has_errors(self) -> bool:
        """Whether anything in it is not in force."""
        return any(problem.level == "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"kind": self.kind, "entries": self.entries, "problems": [problem.as_dict() for problem in self.problems]}


def check_file(data: bytes, *, file: Path, kind: FileKind | None = None) -> Checked:
    """Whatever the file is, by its content unless `kind` says so: a condition, an export of Azure, principals, rules, or cases to test.

    A file that is none of them, or that cannot be read as what it is, is one error that says what to write.
    """
    found, entries = _kind(data, file)
    kind = kind or found
    try:
        problems = tuple(_problems(kind, data, file))
    except ConfigError as error:
        problems = (Problem(level="error", where="", problem=str(error)),)
    return Checked(kind=kind, entries=entries, problems=problems)


def check_condition(text: str, where: str = "") -> list[Problem]:
    """What is wrong with one condition: that it does not parse, or what its lints say."""
    try:
        condition = parse(text)
    except ConditionError as error:
        return [Problem(level="error", where=where, problem=str(error), at=error.position + 1)]
    return _doubts(condition, text, where)


def _kind(data: bytes, file: Path) -> tuple[FileKind, int]:
    if file.suffix.lower() == ".toml":
        return "access rules", 0
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        # What was to be JSON and is none is told by whoever reads exports; anything else is the text of a condition.
        return ("role assignments", 0) if file.suffix.lower() == ".json" else ("condition", 1)
    if isinstance(document, dict):
        document = next((document[key] for key in ("value", "principals", "cases") if key in document), document)
    entries = document if isinstance(document, list) else [document]
    objects = [entry for entry in entries if isinstance(entry, dict)]
    inner = [entry["properties"] for entry in objects if isinstance(entry.get("properties"), dict)]
    return _kind_of_keys({key for one in (*objects, *inner) for key in one}), len(entries)


def _kind_of_keys(keys: set[str]) -> FileKind:
    if {"decision", "kleene"} & keys and "condition" in keys:
        return "cases"
    if {"principals", "excludePrincipals", "denyAssignmentName", "doNotApplyToChildScopes"} & keys:
        return "deny assignments"
    if {"roleName", "assignableScopes"} & keys:
        return "role definitions"
    return "principals" if keys and keys <= {"id", "name", "groups", "attributes"} else "role assignments"


def _problems(kind: FileKind, data: bytes, file: Path) -> Iterable[Problem]:
    match kind:
        case "condition":
            return check_condition(data.decode("utf-8-sig", "replace").strip())
        case "role assignments":
            assigned = parse_assignments(data, file=file)
            if not assigned.assignments and not assigned.problems:
                return [Problem(level="warning", where="", problem="no role is assigned to anybody, so nobody reads anything")]
            return _with_doubts(assigned.problems, [(one.name, one.condition, one.text) for one in assigned.assignments])
        case "deny assignments":
            denied = parse_deny_assignments(data, file=file)
            return _with_doubts(denied.problems, [(one.name, one.condition, one.text) for one in denied.assignments])
        case "role definitions":
            return _with_doubts(parse_roles(data, file=file).problems, [])
        case "access rules":
            return [Problem(level="warning", where="", problem=problem) for problem in parse_rules(data, file=file).lint()]
        case "principals":
            nobody = Problem(level="warning", where="", problem="nobody is listed, so nobody can ask", remedy="write who asks into it")
            return [] if parse_principals(data, file=file) else [nobody]
        case "cases":
            return _cases(data)


def _cases(data: bytes) -> list[Problem]:
    try:
        document = load_json(data)
    except (ValueError, RecursionError) as error:
        return [Problem(level="error", where="", problem=f"the cases cannot be read: {error}")]
    entries = document.get("cases") if isinstance(document, Mapping) else document
    found: list[Problem] = []
    for number, entry in enumerate(entries if isinstance(entries, list) else [], start=1):
        try:
            case = load_case(entry, number=number)
        except ConfigError as error:
            found.append(Problem(level="error", where=f"case {number}", problem=str(error)))
        else:
            found += check_condition(case.condition, f"case {case.id}")
    return found


def _with_doubts(problems: Iterable[str], conditions: Iterable[tuple[str, Condition | None, str | None]]) -> list[Problem]:
    found = [Problem(level="error", where="", problem=problem) for problem in problems]
    for name, condition, text in conditions:
        if condition is not None:
            found += _doubts(condition, text, name)
    return found


def _doubts(condition: Condition, text: str | None, where: str) -> list[Problem]:
    return [
        Problem(level="warning", where=where, problem=one.problem, remedy=one.remedy, at=None if one.at is None else one.at + 1)
        for one in lint(condition, text)
    ]
