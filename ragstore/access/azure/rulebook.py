"""Assignments, roles, deny assignments and accounts in; what is granted and denied to the holder of some ids out, in memory and indexed."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragstore.access.azure.assignments import Assignment, Assignments
from ragstore.access.azure.deny import DenyAssignment, DenyAssignments
from ragstore.access.azure.roles import Role, Roles
from ragstore.access.azure.scopes import EVERYWHERE, Reach, accounts_of, reach_of_denial, reach_of_grant
from ragstore.access.conditions.tree import Condition
from ragstore.access.ids import shorten

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role assignment with what it means here."""

    assignment: Assignment
    role: Role | None
    """None where its definition is unknown: then it grants nothing."""
    reach: Reach

    @property
    def matters(self) -> bool:
        """Whether any blob can be read by it."""
        return self.role is not None and self.role.matters and not self.reach.nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A deny assignment with the blobs that it may cover."""

    assignment: DenyAssignment
    reach: Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """All that the files of a policy say, at one moment."""

    grants: Mapping[str, tuple[Grant, ...]]
    """By the id to which they are granted."""
    denials: tuple[Denial, ...]
    problems: tuple[str, ...]
    digest: str
    """Another one whenever a file or the list of accounts is another."""

    def granted(self, ids: Iterable[str]) -> Iterator[Grant]:
        """Every assignment to one of these ids, also those by which nothing can be read."""
        for own in sorted(ids):
            yield from self.grants.get(own, ())

    def denied(self, ids: frozenset[str]) -> Iterator[Denial]:
        """The deny assignments that concern the holder of these ids."""
        return (denial for denial in self.denials if denial.assignment.concerns(ids))

    def conditions(self) -> Iterator[tuple[str, Condition]]:
        """Every condition, with the name of the assignment or the deny assignment it belongs to."""
        for grants in self.grants.values():
            yield from ((grant.assignment.name, grant.assignment.condition) for grant in grants if grant.assignment.condition is not None)
        for denial in self.denials:
            if denial.assignment.condition is not None:
                yield f"deny assignment {denial.assignment.name}", denial.assignment.condition


def compile_rules(assignments: Assignments, roles: Roles, denials: DenyAssignments, told: Sequence[str]) -> Rulebook:
    """The rulebook. `told` are the ARM ids of accounts. Raises `ConfigError` for one that is none."""
    accounts = accounts_of(told, [*(one.scope for one in assignments.assignments), *denials.scopes])
    by_scope: dict[str, Reach] = {}
    grants: dict[str, list[Grant]] = defaultdict(list)
    for assignment in assignments.assignments:
        text = assignment.scope.text
        if text not in by_scope:
            by_scope[text] = reach_of_grant(assignment.scope, accounts)
        grants[assignment.principal].append(Grant(assignment=assignment, role=roles.get(assignment.role), reach=by_scope[text]))
    reaches = [
        EVERYWHERE if denial.scope is None else reach_of_denial(denial.scope, accounts, only_itself=denial.only_itself)
        for denial in denials.assignments
    ]
    return Rulebook(
        grants={own: tuple(found) for own, found in grants.items()},
        denials=tuple(Denial(assignment=one, reach=reach) for one, reach in zip(denials.assignments, reaches, strict=True)),
        problems=(
            *assignments.problems,
            *roles.problems,
            *denials.problems,
            *_problems([grant for found in grants.values() for grant in found]),
        ),
        digest=digest_of_rules(assignments, roles, denials, told),
    )


def digest_of_rules(assignments: Assignments, roles: Roles, denials: DenyAssignments, told: Sequence[str]) -> str:
    """32 hex digits of all that decides."""
    text = "\0".join((assignments.digest, roles.digest, denials.digest, *told))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _problems(grants: Sequence[Grant]) -> Iterator[str]:
    """What could grant, and does not, because of a role or of a scope: one sentence for each role and scope, however many assignments."""
    unresolved = Counter((one.assignment.role, one.assignment.role_name) for one in grants if one.role is None)
    for (guid, name), count in unresolved.most_common(_SHOWN):
        shown = f"{guid} ({shorten(name)})" if name else guid
        does = "grants" if count == 1 else "grant"
        yield (
            f"the role {shown} is unknown, so that {count} of the role assignments {does} nothing: write the definitions of roles "
            "to a file (az role definition list -o json > roles.json) and name it as [access] role_definitions"
        )
    if len(unresolved) > _SHOWN:
        yield f"{len(unresolved) - _SHOWN} more roles are unknown; their assignments grant nothing"
    doubtful = [one for one in grants if one.reach.doubt and one.role is not None and one.role.matters]
    scopes = Counter((one.assignment.scope.text, one.reach.doubt) for one in doubtful)
    for (scope, doubt), count in scopes.most_common(_SHOWN):
        yield f"the scope {scope!r} of {count} of the role assignments reaches nothing: {doubt}"
    if len(scopes) > _SHOWN:
        yield f"{len(scopes) - _SHOWN} more scopes reach nothing, for want of [access] accounts or because no blob lies in them"
