"""A principal and a rulebook in, all that concerns this principal out: what decides over one blob, and what a filter is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ragstore.access.azure.rulebook import Denial, Grant, Rulebook
from ragstore.access.conditions.evaluation import Caseless, evaluate
from ragstore.access.conditions.resource import resource_of
from ragstore.access.conditions.tree import READ_ACTION, SUPERUSER_ACTION, TIME, AttributeValue, Condition, Context, Truth
from ragstore.access.conditions.values import fold, instant
from ragstore.access.ids import ID_RULE, ids_of, parse_id, shorten
from ragstore.access.principals import condition_attributes
from ragstore.errors import AccessError
from ragstore.models import AccessAttributes, Principal

_TIME: Final = fold(TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One principal as one rulebook sees it; its grants are those by which something can be read, the ones without a condition first."""

    ids: frozenset[str]
    reading: tuple[Grant, ...]
    """By roles that read blobs."""
    superuser: tuple[Grant, ...]
    """By roles that may do everything in a hierarchical namespace, whatever the ACLs."""
    reading_denied: tuple[Denial, ...]
    superuser_denied: tuple[Denial, ...]
    attributes: Mapping[str, AttributeValue]
    environment: Mapping[str, AttributeValue]

    @classmethod
    def of(cls, principal: Principal, book: Rulebook) -> Reader:
        """Raises `AccessError` where the principal's attributes contradict each other, and where one of its groups is no id."""
        ids = ids_of(principal)
        if ids and (odd := next((group for group in principal.groups if group and parse_id(group) is None), None)) is not None:
            # It may be a group that a deny assignment names: to leave it out would lift that.
            raise AccessError(f"the principal's group {shorten(odd)} is no id, so that nobody knows what is denied to it; {ID_RULE}")
        grants = sorted((grant for grant in book.granted(ids) if grant.matters), key=lambda grant: grant.assignment.condition is not None)
        denials = tuple(book.denied(ids))
        return cls(
            ids=ids,
            reading=tuple(grant for grant in grants if grant.role is not None and grant.role.reads),
            superuser=tuple(grant for grant in grants if grant.role is not None and grant.role.superuser),
            reading_denied=tuple(denial for denial in denials if denial.assignment.reads),
            superuser_denied=tuple(denial for denial in denials if denial.assignment.superuser),
            attributes=Caseless(condition_attributes(principal)),
            environment={name: value for name, value in principal.environment.items() if fold(name) != _TIME},
        )

    def conditions(self) -> list[Condition]:
        """All that decide anything, each once."""
        of_grants = (grant.assignment.condition for grant in (*self.reading, *self.superuser))
        of_denials = (denial.assignment.condition for denial in (*self.reading_denied, *self.superuser_denied))
        return list({id(condition): condition for condition in (*of_grants, *of_denials) if condition is not None}.values())

    def context(self, *, now: int, action: str = READ_ACTION, attributes: AccessAttributes | None = None) -> Context:
        """What conditions are evaluated against, of one blob or of none, at this time in ticks."""
        resource, tags = ({}, {}) if attributes is None else resource_of(attributes)
        environment = {**self.environment, TIME: instant(now)}
        return Context(action=action, resource=resource, tags=tags, principal=self.attributes, environment=environment)

    def may_read(self, attributes: AccessAttributes, *, now: int, by_acl: Callable[[], bool]) -> bool:
        """Whether the blob can be read: not denied, and assigned or, in a hierarchical namespace, allowed by ACLs.

        Role assignments come before ACLs, which are asked only where those do not grant
        (https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-access-control-model). A denial takes away both.
        """
        context = self.context(now=now, attributes=attributes)
        if denied_by(self.reading_denied, attributes, context):
            return False
        if granted_by(self.reading, attributes, context):
            return True
        if attributes.acl is None:
            return False
        context = self.context(now=now, action=SUPERUSER_ACTION, attributes=attributes)
        if granted_by(self.superuser, attributes, context) and not denied_by(self.superuser_denied, attributes, context):
            return True
        return by_acl()


def granted_by(grants: Iterable[Grant], attributes: AccessAttributes, context: Context) -> bool:
    """Whether one of them covers the blob and has a condition that is surely true, or none. They add up: none takes anything away."""
    known: dict[int, Truth] = {}
    for grant in grants:
        if not grant.reach.covers(attributes.account, attributes.container):
            continue
        if _truth(grant.assignment.condition, context, known) is True:
            return True
    return False


def denied_by(denials: Iterable[Denial], attributes: AccessAttributes, context: Context) -> bool:
    """Whether one of them covers the blob and has no condition that is surely false."""
    for denial in denials:
        if not denial.reach.covers(attributes.account, attributes.container):
            continue
        if _truth(denial.assignment.condition, context, {}) is not False:
            return True
    return False


def _truth(condition: Condition | None, context: Context, known: dict[int, Truth]) -> Truth:
    """The truth of a condition, which many assignments may share; none is true."""
    if condition is None:
        return True
    key = id(condition)
    if key not in known:
        known[key] = evaluate(condition, context)
    return known[key]
