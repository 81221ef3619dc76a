"""Scopes of assignments in, the accounts and containers that they reach out.

A row of the index knows its account by name only. Names of storage accounts are unique in the whole of Azure, so that an account's place,
which is its subscription and its resource group, follows from its name where it is told, or where a scope of the same files names it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ragstore.access.conditions.tree import ACCOUNT, CONTAINER, And, Attribute, Comparison, Condition, Constant, Known, Not, Or, Values
from ragstore.access.conditions.values import fold
from ragstore.access.ids import shorten
from ragstore.errors import ConfigError

Level = Literal[
    "root",
    "management group",
    "subscription",
    "resource group",
    "account",
    "within an account",
    "container",
    "within a container",
    "elsewhere",
]

_NAME: Final = "([^/]+)"
_SUBSCRIPTION: Final = f"/SUBSCRIPTIONS/{_NAME}"
_GROUP: Final = f"{_SUBSCRIPTION}/RESOURCEGROUPS/{_NAME}"
_ACCOUNT: Final = f"{_GROUP}/PROVIDERS/MICROSOFT\\.STORAGE/STORAGEACCOUNTS/{_NAME}"
_BLOBS: Final = f"{_ACCOUNT}/BLOBSERVICES/DEFAULT"
_CONTAINER: Final = f"{_BLOBS}/CONTAINERS/{_NAME}"
_LEVELS: Final[tuple[tuple[Level, re.Pattern[str]], ...]] = (
    ("root", re.compile("/")),
    ("management group", re.compile(f"/PROVIDERS/MICROSOFT\\.MANAGEMENT/MANAGEMENTGROUPS/{_NAME}")),
    ("subscription", re.compile(_SUBSCRIPTION)),
    ("resource group", re.compile(_GROUP)),
    ("account", re.compile(_ACCOUNT)),
    ("account", re.compile(_BLOBS)),
    ("container", re.compile(_CONTAINER)),
    ("within a container", re.compile(f"{_CONTAINER}/.+")),
    ("within an account", re.compile(f"{_ACCOUNT}/BLOBSERVICES(?:/.*)?")),
    ("elsewhere", re.compile(f"(?:{_SUBSCRIPTION}|{_GROUP})?/PROVIDERS/[0-9A-Z.-]+/.+")),
)
_INVISIBLE: Final = re.compile("[\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff]|\\s/|/\\s|\\s\\Z|\\A\\s")
"""What stands nowhere in an ARM id: with it, a scope looks like one place and means none, and a denial of it would deny nothing."""
_NO_NAME: Final = re.compile(r"[<>*%&:\\?#]")
"""The same of names of accounts and of what is around and in them
(https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules)."""
_SUPERIOR: Final = frozenset({"root", "management group"})
_EXAMPLE: Final = "/subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Storage/storageAccounts/NAME"
_REMEDY: Final = f'write where it lies: [access] accounts = ["{_EXAMPLE}"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureScope:
    """A scope taken apart. Its names are folded, because ARM's have no case."""

    text: str
    """As it was written."""
    level: Level
    subscription: str | None = None
    group: str | None = None
    account: str | None = None
    container: str | None = None

    @property
    def place(self) -> Place | None:
        """Of the account that it names, if it names one."""
        return None if self.subscription is None or self.group is None or self.account is None else (self.subscription, self.group)


Place = tuple[str, str]
"""The subscription and the resource group of an account, folded."""


def parse_scope(text: str) -> AzureScope | None:
    """The scope that this ARM id is; None where it is none, also for characters that none has."""
    if _INVISIBLE.search(text) or text.startswith("//"):
        return None
    folded = fold(text.rstrip("/")) if text.strip("/") else text
    for level, pattern in _LEVELS:
        found = pattern.fullmatch(folded)
        if found is None:
            continue
        if level in _SUPERIOR or level == "elsewhere":
            return AzureScope(text=text, level=level) if "//" not in folded else None
        if _NO_NAME.search("".join(found.groups())):
            return None
        names = (*found.groups(), None, None, None, None)
        return AzureScope(text=text, level=level, subscription=names[0], group=names[1], account=names[2], container=names[3])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What is known of where accounts lie."""

    places: Mapping[str, Place] = field(default_factory=dict)
    """By folded name."""
    disputed: frozenset[str] = frozenset()
    """Names that scopes put into several places."""
    subscriptions: frozenset[str] = frozenset()
    """All that scopes speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which blobs a scope covers: those of some accounts, or of all but some, and of one container or of all."""

    accounts: frozenset[str] = frozenset()
    """Folded names."""
    others: bool = False
    """Instead all accounts but these."""
    container: str | None = None
    """Folded; None is every container."""
    doubt: str | None = None
    """Why an assignment reaches less, or a deny assignment more, than it may in Azure."""

    @property
    def nothing(self) -> bool:
        """Whether it covers no blob at all."""
        return not self.accounts and not self.others

    def covers(self, account: str, container: str) -> bool:
        """Whether a blob of this account and container is covered."""
        if self.container is not None and self.container != fold(container):
            return False
        return (fold(account) in self.accounts) is not self.others


def joined(reaches: Iterable[Reach]) -> Condition:
    """That one of these covers the blob. Containers of one account become one set, because stores have limits."""
    containers: dict[tuple[frozenset[str], bool], set[str] | None] = {}
    for reach in reaches:
        place = (reach.accounts, reach.others)
        found = containers.setdefault(place, set())
        if reach.container is None:
            containers[place] = None
        elif found is not None:
            found.add(reach.container)
    parts = [_place(accounts, names, others=others) for (accounts, others), names in containers.items()]
    parts = [part for part in parts if part != Known(truth=False)]
    if not parts or Known(truth=True) in parts:
        return Known(truth=bool(parts))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _place(accounts: frozenset[str], containers: Iterable[str] | None, *, others: bool) -> Condition:
    parts: list[Condition] = []
    if accounts:
        named = _same(ACCOUNT, accounts)
        parts.append(Not(named) if others else named)
    elif not others:
        return Known(truth=False)
    if containers is not None:
        parts.append(_same(CONTAINER, containers))
    if not parts:
        return Known(truth=True)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


NOWHERE: Final = Reach()
EVERYWHERE: Final = Reach(others=True)


def accounts_of(told: Iterable[str], scopes: Iterable[AzureScope]) -> Accounts:
    """What is told (ARM ids of accounts) and what the scopes say beside it; what is told counts more.

    Raises `ConfigError` for an id that is not an account's, and for two of one name.
    """
    places: dict[str, Place] = {}
    for text in told:
        scope = parse_scope(text)
        if scope is None or scope.level != "account" or scope.account is None or scope.place is None:
            raise ConfigError(f"[access] accounts: {shorten(text)} is not the id of a storage account, which looks like {_EXAMPLE!r}")
        if places.setdefault(scope.account, scope.place) != scope.place:
            raise ConfigError(f"[access] accounts: the account of {shorten(text)} is there twice, in two places: leave the right one")
    named: dict[str, set[Place]] = defaultdict(set)
    subscriptions: set[str] = set()
    for scope in scopes:
        if scope.subscription is not None:
            subscriptions.add(scope.subscription)
        if scope.account is not None and scope.place is not None and scope.account not in places:
            named[scope.account].add(scope.place)
    places.update({account: next(iter(found)) for account, found in named.items() if len(found) == 1})
    disputed = frozenset(account for account, found in named.items() if len(found) > 1)
    return Accounts(places=places, disputed=disputed, subscriptions=frozenset(subscriptions))


def reach_of_grant(scope: AzureScope, accounts: Accounts) -> Reach:
    """The blobs that surely lie within the scope of a role assignment."""
    match scope.level:
        case "root" | "management group":
            return _inherited(accounts)
        case "subscription" | "resource group":
            found = frozenset(account for account, place in accounts.places.items() if _within(place, scope))
            doubt = None if found else f"no storage account is known to lie in the {scope.level}; if yours does, {_REMEDY}"
            return Reach(accounts=found, doubt=doubt)
        case "account" | "container":
            account = scope.account or ""
            if account in accounts.disputed:
                return Reach(doubt=f"scopes name the account {shorten(account.lower())} in several places; {_REMEDY}")
            if accounts.places.get(account) != scope.place:
                return Reach(doubt=f"[access] accounts puts the account {shorten(account.lower())} into another place")
            return Reach(accounts=frozenset({account}), container=scope.container)
        case "within an account" | "within a container":
            return Reach(doubt="no blob has such a scope: it ends with .../blobServices/default/containers/NAME, or before")
        case "elsewhere":
            return NOWHERE


def reach_of_denial(scope: AzureScope, accounts: Accounts, *, only_itself: bool = False) -> Reach:
    """The blobs that may lie within the scope of a deny assignment; `only_itself` where it does not apply to child scopes."""
    if only_itself and scope.level not in {"container", "within a container"}:
        return NOWHERE  # a container is the smallest scope, and a blob lies in it
    match scope.level:
        case "root" | "management group":
            return EVERYWHERE
        case "subscription" | "resource group":
            return Reach(accounts=frozenset(name for name, place in accounts.places.items() if not _within(place, scope)), others=True)
        case "account" | "container" | "within an account" | "within a container":
            return Reach(accounts=frozenset({scope.account or ""}), container=scope.container)
        case "elsewhere":
            return NOWHERE


def _inherited(accounts: Accounts) -> Reach:
    """What the root and management groups reach: an export holds what its subscription inherits, which says nothing of other ones.

    So an account is left out that lies in a subscription of which no scope speaks, and one whose subscription is unknown where scopes speak
    of several.
    """
    spoken = accounts.subscriptions
    strangers = frozenset(name for name, place in accounts.places.items() if spoken and place[0] not in spoken)
    if len(spoken) <= 1:
        return Reach(accounts=strangers, others=True)
    known = frozenset(accounts.places) - strangers
    doubt = None if known else f"the files speak of several subscriptions, and in which the account lies is unknown; {_REMEDY}"
    return Reach(accounts=known, doubt=doubt)


def _within(place: Place, scope: AzureScope) -> bool:
    return place[0] == scope.subscription and scope.group in {None, place[1]}


def _same(name: str, values: Iterable[str]) -> Condition:
    path, _, key = name.rpartition(":")
    attribute = Attribute(source="Resource", path=path, key=key)
    constants = Values(tuple(Constant(value) for value in sorted(values)))
    return Comparison(left=attribute, operator="StringEqualsIgnoreCase", right=constants, quantifier="ForAnyOfAnyValues")
