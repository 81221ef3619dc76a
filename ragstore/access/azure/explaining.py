"""A principal, a blob and a rulebook in; assignment by assignment and ACL by ACL, what each does to the decision out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ragstore.access.acl_table import AclTable
from ragstore.access.azure.reader import Reader, denied_by
from ragstore.access.azure.rulebook import Denial, Grant, Rulebook
from ragstore.access.conditions.tracing import Clause, deciding, trace
from ragstore.access.conditions.tree import SUPERUSER_ACTION, Condition, Context
from ragstore.access.explanation import Explanation, Reason
from ragstore.access.ids import parse_id
from ragstore.models import AccessAttributes, Principal

_TRUTHS = {True: "true", False: "false", None: "unknown"}
_GUARDS = ("ActionMatches", "SubOperationMatches")


def explain(
    principal: Principal, attributes: AccessAttributes, *, book: Rulebook, table: AclTable | None, now: int, allowed: bool
) -> Explanation:
    """Why `Reader.may_read` says what it says, which is `allowed`; `now` in ticks. Raises `AccessError` as `Reader.of` does."""
    reader = Reader.of(principal, book)
    reading = reader.context(now=now, attributes=attributes)
    superuser = reader.context(now=now, action=SUPERUSER_ACTION, attributes=attributes)
    reasons = [_denial(denial, attributes, reading, superuser) for denial in book.denied(reader.ids)]
    without = denied_by(reader.superuser_denied, attributes, superuser)
    for grant in book.granted(reader.ids):
        reasons.extend(_grant(grant, principal, attributes, reading, None if without else superuser))
    acls = list(_acls(table, principal, attributes))
    return Explanation(
        principal=principal.id,
        blob=f"{attributes.container}/{attributes.path}",
        mode="azure",
        allowed=allowed,
        why=_summary(reader, reasons, acls, allowed=allowed),
        reasons=(*reasons, *acls),
    )


def _summary(reader: Reader, reasons: Iterable[Reason], acls: list[Reason], *, allowed: bool) -> str:
    if not reader.ids:
        return "the principal has no valid id, so that nothing can be assigned to it"
    denying = [reason.name for reason in reasons if reason.outcome == "denies" and reason.kind == "deny assignment"]
    granting = [reason for reason in reasons if reason.outcome == "grants"]
    if allowed:
        return f"the role assignment {granting[0].name} grants it ({granting[0].role})" if granting else "the ACLs of the blob grant it"
    if denying:
        return f"the deny assignment {denying[0]} denies it, whatever is granted"
    assigned = [reason for reason in reasons if reason.kind == "assignment"]
    if not assigned:
        found = "no role is assigned to the principal or to its groups"
    elif len(assigned) == 1:
        found = f"the role assignment {assigned[0].name} does not grant it: {assigned[0].why}"
    else:
        found = f"none of {len(assigned)} role assignments grants it"
    stopped = next((reason for reason in acls if reason.outcome == "stops"), None)
    return f"{found}, and the ACL of {stopped.name!r} stops it" if stopped else found


def _grant(
    grant: Grant, principal: Principal, attributes: AccessAttributes, reading: Context, superuser: Context | None
) -> Iterator[Reason]:
    """Once for the reading of blobs; again for the action that allows everything in a hierarchical namespace, where that may help.

    `superuser` is None where that action is denied.
    """
    role = grant.role
    if role is None:
        why = f"its role {grant.assignment.role} is unknown: name a file with the definition as [access] role_definitions"
        yield _reason(grant, principal, attributes, why=why)
        return
    by_superuser = role.superuser and attributes.acl is not None
    if not role.reads and not by_superuser:
        where = " on an account without a hierarchical namespace" if role.superuser else ""
        yield _reason(grant, principal, attributes, why=f"the role holds no data action by which blobs are read{where}")
        return
    if role.reads:
        found = _decided(grant, principal, attributes, reading, action="")
        yield found
        if found.outcome == "grants":
            return
    if not by_superuser:
        return
    if superuser is None:
        yield _reason(grant, principal, attributes, why="a deny assignment takes away the action runAsSuperUser, which its role holds")
    else:
        yield _decided(grant, principal, attributes, superuser, action=" for the action runAsSuperUser")


def _decided(grant: Grant, principal: Principal, attributes: AccessAttributes, context: Context, *, action: str) -> Reason:
    if not grant.reach.covers(attributes.account, attributes.container):
        doubt = f": {grant.reach.doubt}" if grant.reach.doubt else ""
        return _reason(grant, principal, attributes, why=f"{_out_of_reach(attributes)}{doubt}")
    clause = _clause(grant.assignment.condition, context)
    why = f"its role reads blobs, and it has no condition{action}" if clause is None else f"its condition is {_told(clause)}{action}"
    return _reason(grant, principal, attributes, why=why, clause=clause, grants=clause is None or clause.truth is True)


def _out_of_reach(attributes: AccessAttributes) -> str:
    """With the account, which the blob's name in results leaves out: a folder is one as well, and is named `local`."""
    return f"its scope does not cover the blob, which lies in account {attributes.account!r}, container {attributes.container!r}"


def _reason(
    grant: Grant, principal: Principal, attributes: AccessAttributes, *, why: str, clause: Clause | None = None, grants: bool = False
) -> Reason:
    assignment = grant.assignment
    return Reason(
        kind="assignment",
        name=assignment.name,
        outcome="grants" if grants else "nothing",
        why=why,
        via="the principal itself" if assignment.principal == parse_id(principal.id) else f"group {assignment.principal}",
        role=grant.role.name if grant.role else assignment.role_name or assignment.role,
        scope=assignment.scope.text,
        covers=grant.reach.covers(attributes.account, attributes.container),
        condition=assignment.text,
        clause=clause,
    )


def _denial(denial: Denial, attributes: AccessAttributes, reading: Context, superuser: Context) -> Reason:
    assignment = denial.assignment
    covers = denial.reach.covers(attributes.account, attributes.container)
    clause = _clause(assignment.condition, reading if assignment.reads else superuser) if covers else None
    denies = covers and (clause is None or clause.truth is not False)
    if not covers:
        why = _out_of_reach(attributes)
    elif clause is None:
        why = "it has no condition that could leave the blob out"
    else:
        why = f"its condition is {_told(clause)}"
    return Reason(
        kind="deny assignment",
        name=assignment.name,
        outcome="denies" if denies and assignment.reads else "nothing",
        why=why if assignment.reads else f"it denies the action runAsSuperUser alone; {why}",
        via="everyone" if assignment.principals is None else None,
        scope=assignment.scope.text if assignment.scope else None,
        covers=covers,
        condition=assignment.text,
        clause=clause,
    )


def _acls(table: AclTable | None, principal: Principal, attributes: AccessAttributes) -> Iterator[Reason]:
    if attributes.acl is None:
        return
    if table is None:
        yield Reason(kind="acl", name=attributes.path, outcome="stops", why="the ACLs of this index are not read")
        return
    for step in table.steps(principal, attributes):
        said = "gives" if step.decision.granted else "does not give"
        yield Reason(
            kind="acl",
            name=step.path or "/",
            outcome="passes" if step.decision.granted else "stops",
            why=f"{step.decision.entry} {said} {step.wanted}",
        )


def _clause(condition: Condition | None, context: Context) -> Clause | None:
    return None if condition is None else trace(condition, context)


def _told(clause: Clause) -> str:
    """The truth, and which clauses decided it where it is not true."""
    if clause.truth is True:
        return "true"
    found = deciding(clause)
    # That the action is the reading of blobs goes without saying, unless nothing else decided.
    telling = [leaf for leaf in found if not leaf.text.startswith(_GUARDS)] or found
    leaves = list(dict.fromkeys(_leaf(leaf) for leaf in telling))
    return f"{_TRUTHS[clause.truth]}: {'; '.join(leaves[:3])}{'; ...' if len(leaves) > 3 else ''}"  # noqa: PLR2004 - a line is enough


def _leaf(leaf: Clause) -> str:
    """What it says, and what it saw."""
    if leaf.why:
        return leaf.why
    seen = ", ".join("missing" if one.value is None else repr(one.value) for one in leaf.seen)
    return f"{leaf.text} is {_TRUTHS[leaf.truth]} ({seen})" if seen else f"{leaf.text} is {_TRUTHS[leaf.truth]}"
