"""Access attributes and a principal in; the columns to store, the filter to search with and the decision out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from ragstore.access.explanation import Explanation, Reason
from ragstore.access.ids import IdList, ids_of, parse_id, shorten, split_ids
from ragstore.access.labels import columns_of
from ragstore.access.rules import parse_rules
from ragstore.access.watched import WatchedFile
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, NEVER, AnyOf, Filter, any_of
from ragstore.models import AccessAttributes, AccessColumns, Principal

_COLUMNS_VERSION: Final = 1
"""Raised when the same attributes would give other columns, so that every index is retagged once."""

_GROUP_OPTIONS: Final = ("metadata_key", "tag_key", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a principal may read, as a store can be asked for it."""

    filter: Filter
    """True at least for every row whose columns are up to date and that the policy would grant."""
    exact: bool = True
    """True of no other row: a store that then proposes a forbidden one did not apply the filter, or its columns lag behind."""


class Policy(Protocol):
    """Decides who may read what. Only `grants` is the truth; `columns` and `filter_for` make the search cheap."""

    mode: str

    @property
    def fingerprint(self) -> str:
        """Changes whenever the columns derived from the same attributes would change: the index must then be retagged."""
        ...

    @property
    def digest(self) -> str:
        """Changes with whatever may change a decision, for the audit log and for caches; by default the fingerprint."""
        return self.fingerprint

    def columns(self, attributes: AccessAttributes, *, media_type: str) -> AccessColumns:
        """What a store keeps in every row of a blob with these attributes."""
        ...

    def problems(self, attributes: AccessAttributes) -> list[str]:
        """What in this blob's attributes was meant to grant and does not; for the report of the sync."""
        ...

    def lint(self) -> list[str]:
        """What is wrong with the policy as a whole, whatever the blob."""
        ...

    def filter_for(self, principal: Principal) -> Scope:
        """The rows that this principal may read, or more.

        - `NEVER` for a principal without an id: it may read nothing in any mode.
        - Raises `AccessError` where what decides cannot be read.
        """
        ...

    def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
        """Whether this principal may read a blob with these attributes. Raises `AccessError` as `filter_for` does."""
        ...

    def grants_for(self, principal: Principal) -> Callable[[AccessAttributes], bool]:
        """`grants` by what the policy says now, for some blobs that are decided at once. Raises `AccessError` as `filter_for` does.

        Retrieval asks this one. Whoever overrides it overrides `grants` as well: the two must never differ.
        """
        return partial(self.grants, principal)

    def explain(self, principal: Principal, attributes: AccessAttributes) -> Explanation:
        """Why `grants` says what it says, for whoever may see the policy. Raises `AccessError` as `filter_for` does."""
        ...


class OpenPolicy(Policy):
    """Every principal that has an id reads everything."""

    mode = "open"

    @property
    @override
    def fingerprint(self) -> str:
        return digest_of_columns("open")

    @override
    def columns(self, attributes: AccessAttributes, *, media_type: str) -> AccessColumns:
        return columns_of(attributes, media_type=media_type)

    @override
    def problems(self, attributes: AccessAttributes) -> list[str]:
        return []

    @override
    def lint(self) -> list[str]:
        return []

    @override
    def filter_for(self, principal: Principal) -> Scope:
        return Scope(filter=ALWAYS if principal.id.strip() else NEVER)

    @override
    def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
        return bool(principal.id.strip())

    @override
    def explain(self, principal: Principal, attributes: AccessAttributes) -> Explanation:
        allowed = self.grants(principal, attributes)
        why = "in mode 'open' every principal reads everything" if allowed else "the principal has no id, and without one nothing is read"
        return _explanation(self.mode, principal, attributes, allowed=allowed, why=why)


class GroupsPolicy(Policy):
    """A blob is read by the ids that it lists, as a principal or as one of its groups; an empty or missing list is nobody.

    The list comes from exactly one place:

    - `metadata_key`: a metadata entry, ids separated by spaces or commas.
    - `tag_key`: an index tag, ids separated by spaces. A tag holds 256 characters, which is six GUIDs; further ids go into the tags
      `KEY-1`, `KEY-2` and so on, whose lists are joined. A blob has at most ten tags, so sixty GUIDs.
    - `rules`: a TOML file of globs over the blob's path in its container, where the last matching rule decides (`access.rules`).
      A changed file counts at once: what it takes away is refused by `grants`, and what it gives by folder or by name is found; what it
      gives by any other glob is found when the index has been retagged.

    An entry that is no id grants nothing and is reported by `problems`. Whoever may write those tags, that metadata or that file decides
    over access. Raises `ConfigError` unless exactly one of the three is given, or where the rules cannot be read.
    """

    mode = "groups"

    def __init__(self, *, metadata_key: str | None = None, tag_key: str | None = None, rules: Path | None = None) -> None:
        given = [name for name, value in zip(_GROUP_OPTIONS, (metadata_key, tag_key, rules), strict=True) if value is not None]
        if len(given) != 1:
            found = "none of them" if not given else " and ".join(given)
            raise ConfigError(f"[access] mode = 'groups' takes exactly one of {', '.join(_GROUP_OPTIONS)}; found {found}")
        if not (metadata_key or tag_key or rules):
            raise ConfigError(f"[access] {given[0]} is empty: name the place that lists the allowed ids")
        self._metadata_key = metadata_key.lower() if metadata_key else None
        self._tag_key = tag_key
        self._tag_keys = re.compile(re.escape(tag_key or "") + "(-[1-9][0-9]*)?")
        self._rules = WatchedFile(rules, lambda data: parse_rules(data, file=rules)) if rules else None

    @property
    @override
    def fingerprint(self) -> str:
        if self._rules:
            return digest_of_columns("groups", "rules", self._rules.current().digest)
        return (
            digest_of_columns("groups", "metadata", self._metadata_key)
            if self._metadata_key
            else digest_of_columns("groups", "tag", self._tag_key or "")
        )

    @override
    def columns(self, attributes: AccessAttributes, *, media_type: str) -> AccessColumns:
        return columns_of(attributes, media_type=media_type, allowed=self._allowed(attributes))

    @override
    def problems(self, attributes: AccessAttributes) -> list[str]:
        if self._rules:
            return self._rules.current().problems_for(attributes.path)
        return [problem for place, ids in self._lists(attributes) for problem in ids.problems(place)]

    @override
    def lint(self) -> list[str]:
        return self._rules.current().lint() if self._rules else []

    @override
    def filter_for(self, principal: Principal) -> Scope:
        ids = ids_of(principal)
        if not ids:
            return Scope(filter=NEVER)
        listed = AnyOf("allowed", ids)
        return Scope(filter=any_of((listed, self._rules.current().surely_granted(ids))) if self._rules else listed)

    @override
    def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
        return not self._allowed(attributes).isdisjoint(ids_of(principal))

    @override
    def explain(self, principal: Principal, attributes: AccessAttributes) -> Explanation:
        ids = ids_of(principal)
        reasons = [_listed(place, listed, principal) for place, listed in self._places(attributes)]
        allowed = self.grants(principal, attributes)
        if allowed:
            why = f"{next(reason.name for reason in reasons if reason.outcome == 'grants')} lists the principal or one of its groups"
        elif not ids:
            why = "the principal has no valid id, so that no list can hold it"
        else:
            why = "no list of the blob holds the principal or one of its groups" if reasons else "the blob has no list, and is nobody's"
        return _explanation(self.mode, principal, attributes, allowed=allowed, why=why, reasons=reasons)

    def _places(self, attributes: AccessAttributes) -> list[tuple[str, IdList]]:
        """The lists that decide over the blob, each with the place where it stands."""
        if not self._rules:
            return self._lists(attributes)
        rules = self._rules.current()
        glob = rules.glob_for(attributes.path)
        return [] if glob is None else [(f"rule {shorten(glob)}", rules.ids_for(attributes.path))]

    def _allowed(self, attributes: AccessAttributes) -> frozenset[str]:
        if self._rules:
            return self._rules.current().ids_for(attributes.path).granted
        return frozenset().union(*(ids.granted for _, ids in self._lists(attributes)))

    def _lists(self, attributes: AccessAttributes) -> list[tuple[str, IdList]]:
        """The blob's own lists, each with the place where it stands."""
        if self._metadata_key:
            found = [(key, value) for key, value in attributes.metadata.items() if key.lower() == self._metadata_key]
            return [(f"metadata {key!r}", split_ids(value, commas=True)) for key, value in found]
        tags = sorted((key, value) for key, value in attributes.tags.items() if self._tag_keys.fullmatch(key))
        return [(f"tag {key!r}", split_ids(value, commas=False)) for key, value in tags]


def digest_of_columns(*parts: str) -> str:
    """16 hex digits over the parts."""
    text = "\0".join((str(_COLUMNS_VERSION), *parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _listed(place: str, listed: IdList, principal: Principal) -> Reason:
    found = sorted(listed.granted & ids_of(principal))
    number = len(listed.granted)
    others = f"it lists {number} id{'' if number == 1 else 's'}: not the principal's, and not that of any of its groups"
    why = f"it lists {', '.join(found)}" if found else others
    return Reason(kind="list", name=place, outcome="grants" if found else "nothing", why=why, via=_via(found, principal))


def _via(found: list[str], principal: Principal) -> str | None:
    if not found:
        return None
    return "the principal itself" if parse_id(principal.id) in found else f"group {found[0]}"


def _explanation(
    mode: str, principal: Principal, attributes: AccessAttributes, *, allowed: bool, why: str, reasons: Iterable[Reason] = ()
) -> Explanation:
    blob = f"{attributes.container}/{attributes.path}"
    return Explanation(principal=principal.id, blob=blob, mode=mode, allowed=allowed, why=why, reasons=tuple(reasons))
