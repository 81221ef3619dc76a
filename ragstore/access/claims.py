"""The claims of an access token whose signature was verified in, the principal that they speak of out; its groups whole, or an error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from ragstore.access.ids import ID_RULE, parse_id, shorten
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError
from ragstore.models import AttributeScalar, Principal

GroupsClaim = Literal["sometimes", "always", "ignored"]
Ids = Literal["guid", "any"]

_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMES: Final = ("name", "preferred_username", "app_displayname")
_NO_RESOLVER: Final = (
    "and no directory is configured that could be asked: name one ([access.graph] type = 'graph'), or, where the issuer puts every "
    "principal's groups into its tokens, say so (groups_claim = 'always')"
)


async def principal_of_claims(
    claims: Mapping[str, object],
    resolver: GroupResolver | None,
    *,
    groups_claim: GroupsClaim = "sometimes",
    ids: Ids = "guid",
    attributes: Mapping[str, tuple[AttributeScalar, ...]] | None = None,
    environment: Mapping[str, str | bool] | None = None,
) -> Principal:
    """Who the token was issued to. Whoever calls has verified signature, issuer, audience and time: nothing of that is done here.

    - The id is `oid`, of a user as of an app (`idtyp: app`): never `sub`, which differs from app to app, and never a name.
    - Groups are those of the claim `groups`. A token holds at most 200 and leaves all of them out above that, with an overage marker in
      their place (https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference#groups-overage-claim): then the
      resolver is asked. The address that stands beside the marker is never followed.
    - `groups_claim`: what a token without the claim and without the marker means. `sometimes`: nothing, so the resolver is asked.
      `always`: there are no groups, because the issuer is known to put them into every token. `ignored`: the resolver is asked whatever
      the token says, which makes a revocation count when the resolver's cache expires, and not when the token does.
    - `ids`: `guid` takes object ids of Entra only. `any` also takes ids of other issuers (`access.ids`), whose groups are then ids and
      not names that people choose.
    - `attributes`: custom security attributes that the host knows; without them the resolver is asked, and without a resolver there are
      none. A condition that grants where an attribute does *not* exist needs one of the two.
    - `environment`: see `Principal.environment`.

    Raises `AccessError` where the claims make no principal, where a group is no id, and where nobody can be asked; what the resolver
    raises otherwise.
    """
    own = _id(claims.get("oid"), ids, "the claim `oid`, which holds the principal's object id,")
    listed = _listed(claims, ids, groups_claim)
    if listed is None and resolver is None:
        raise AccessError(f"the token does not list the groups of its principal, {_NO_RESOLVER}")
    groups, known = await asyncio.gather(_groups(own, listed, resolver, ids), _attributes(own, attributes, resolver))
    return Principal(id=own, name=_name(claims) or own, groups=groups, attributes=known, environment=dict(environment or {}))


async def _groups(own: str, listed: frozenset[str] | None, resolver: GroupResolver | None, ids: Ids) -> frozenset[str]:
    if listed is not None or resolver is None:
        return listed or frozenset()
    return _ids(await resolver.groups(own), ids, "a group that the directory names")


async def _attributes(
    own: str, given: Mapping[str, tuple[AttributeScalar, ...]] | None, resolver: GroupResolver | None
) -> dict[str, tuple[AttributeScalar, ...]]:
    if given is None and resolver is not None:
        given = await resolver.attributes(own)
    return dict(given or {})


def _listed(claims: Mapping[str, object], ids: Ids, groups_claim: GroupsClaim) -> frozenset[str] | None:
    """The groups in the token; None where it does not say them all."""
    if groups_claim == "ignored" or _is_overage(claims):
        return None
    if "groups" not in claims:
        return frozenset() if groups_claim == "always" else None
    groups = claims["groups"]
    if not isinstance(groups, (list, tuple)):
        raise AccessError(f"the claim `groups` of the token is {_kind(groups)}, not a list of object ids: let the issuer emit group ids")
    return _ids(groups, ids, "an entry of the claim `groups`")


def _is_overage(claims: Mapping[str, object]) -> bool:
    """Whether the token says that it leaves groups out. Any marker counts, beside a list of groups too, and one that cannot be read."""
    names = claims.get("_claim_names", {})
    elsewhere = "groups" in names if isinstance(names, Mapping) else True
    return elsewhere or "_claim_sources" in claims or claims.get("hasgroups", False) not in (False, "false")


def _ids(entries: Iterable[object], ids: Ids, what: str) -> frozenset[str]:
    """All of them, or an error: a group that is dropped may be one that a deny assignment names."""
    return frozenset(_id(entry, ids, what) for entry in entries)


def _id(value: object, ids: Ids, what: str) -> str:
    parsed = parse_id(value) if isinstance(value, str) else None
    if parsed is None or (ids == "guid" and not _GUID.fullmatch(parsed)):
        shown = shorten(value) if isinstance(value, str) else _kind(value)
        rule = "an object id is a GUID; for an issuer with ids of another form, say ids = 'any'" if ids == "guid" else ID_RULE
        raise AccessError(f"{what} is {shown}, which is no id: {rule}")
    return parsed


def _name(claims: Mapping[str, object]) -> str | None:
    found = (claims.get(claim) for claim in _NAMES)
    return next((name for name in found if isinstance(name, str) and name.strip()), None)


def _kind(value: object) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"
