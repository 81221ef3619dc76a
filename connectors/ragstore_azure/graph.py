"""The object id of a user or an app in; its groups and its custom security attributes, from Microsoft Graph, out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from azure.core.credentials_async import AsyncTokenCredential
from typing_extensions import override

from ragstore.access.attributes import parse_attributes
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError, ConfigError
from ragstore.models import AttributeScalar
from ragstore_azure.credentials import identity_credential
from ragstore_azure.graph_requests import GraphRequests, checked_url

Found = TypeVar("Found")
Membership = Literal["transitiveMemberOf", "getMemberGroups"]

_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KINDS: Final = ("users", "servicePrincipals")
_PAGE: Final = 999
"""The largest page of a list of directory objects."""
_MOST_PAGES: Final = 200

_GROUPS_RIGHT: Final = "GroupMember.Read.All with User.Read.All and Application.Read.All, or Directory.Read.All"
_CAN_READ_ATTRIBUTES: Final = frozenset({"CustomSecAttributeAssignment.Read.All", "CustomSecAttributeAssignment.ReadWrite.All"})
_ATTRIBUTES_RIGHT: Final = (
    "CustomSecAttributeAssignment.Read.All with User.Read.All and Application.Read.All (or say attributes = false, with which no "
    "condition sees any)"
)


class GraphDirectory(GroupResolver):
    """Asks Microsoft Graph as azure-identity lets this machine in; by object id, first for a user and then for an app.

    - `url`: another one in a national cloud (https://learn.microsoft.com/graph/deployments).
    - `membership`: `transitiveMemberOf` lists any number of groups, from an index that lags behind by seconds. `getMemberGroups` asks the
      directory itself, in one request, and refuses more than 11,000.
    - `attributes`: false never asks for custom security attributes. Conditions then find none, so that one which grants where an attribute
      does *not* exist grants to everybody.
    - `seconds`: how long throttling and outages are waited for.

    The application needs the permissions that the error names: GroupMember.Read.All, User.Read.All, Application.Read.All, and
    CustomSecAttributeAssignment.Read.All for attributes. Groups whose membership is hidden are listed with Member.Read.Hidden only: without
    it they grant nothing, and a deny assignment to one of them goes unseen. `credential` is for a host that has one of its own.
    """

    def __init__(
        self,
        *,
        url: str = "https://graph.microsoft.com",
        membership: Membership = "transitiveMemberOf",
        attributes: bool = True,
        seconds: float = 20.0,
        credential: AsyncTokenCredential | None = None,
    ) -> None:
        if not 0 <= seconds <= 600:  # noqa: PLR2004 - longer than anybody waits for an answer
            raise ConfigError(f"seconds = {seconds} must be between 0 and 600")
        self.url = checked_url(url)
        self._membership = membership
        self._reads_attributes = attributes
        self._seconds = seconds
        self._own = credential is None
        self._credential = credential
        self._opened: GraphRequests | None = None

    @override
    async def groups(self, object_id: str) -> frozenset[str]:
        return await self._of_either_kind(object_id, self._listed if self._membership == "transitiveMemberOf" else self._member_groups)

    @override
    async def attributes(self, object_id: str) -> Mapping[str, tuple[AttributeScalar, ...]]:
        return await self._of_either_kind(object_id, self._assigned) if self._reads_attributes else {}

    @override
    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        if self._own and self._credential is not None:
            await self._credential.close()

    @property
    def _requests(self) -> GraphRequests:
        if self._opened is None:
            self._credential = self._credential or identity_credential()
            self._opened = GraphRequests(self.url, self._credential, seconds=self._seconds)
        return self._opened

    async def _of_either_kind(self, object_id: str, find: Callable[[str], Awaitable[Found | None]]) -> Found:
        own = object_id.lower()
        if not _GUID.fullmatch(own):
            # It becomes part of a path, and Graph would take a name that people choose as well.
            raise AccessError("Microsoft Graph is asked by object id only, which is a GUID")
        for kind in _KINDS:
            found = await find(f"{kind}/{own}")
            if found is not None:
                return found
        raise AccessError(f"the directory at {self.url} knows neither a user nor an app with the object id {own}")

    async def _listed(self, principal: str) -> frozenset[str] | None:
        """https://learn.microsoft.com/graph/api/user-list-transitivememberof: a cast to one type is an advanced query."""
        params = {"$select": "id", "$top": str(_PAGE), "$count": "true"}
        path = f"{principal}/transitiveMemberOf/microsoft.graph.group"
        page = await self._requests.ask(path, params=params, right=_GROUPS_RIGHT, advanced=True)
        if page is None:
            return None
        found: set[str] = set()
        for _ in range(_MOST_PAGES):
            if page is None:
                raise AccessError(f"{self.url} forgot the principal while its groups were listed")
            found.update(self._group_ids(page, lambda entry: entry.get("id") if isinstance(entry, dict) else None))
            if "@odata.nextLink" not in page:
                return frozenset(found)
            page = await self._requests.follow(page["@odata.nextLink"], right=_GROUPS_RIGHT, advanced=True)
        raise AccessError(f"{self.url} lists groups without end: {len(found)} after {_MOST_PAGES} pages")

    async def _member_groups(self, principal: str) -> frozenset[str] | None:
        """https://learn.microsoft.com/graph/api/directoryobject-getmembergroups."""
        body = {"securityEnabledOnly": False}
        answer = await self._requests.ask(f"{principal}/getMemberGroups", params={}, right=_GROUPS_RIGHT, body=body)
        if answer is None:
            return None
        if "@odata.nextLink" in answer:
            raise AccessError(f"{self.url} gives groups by pages, where it should give all; set membership = 'transitiveMemberOf'")
        return frozenset(self._group_ids(answer, lambda entry: entry))

    def _group_ids(self, answer: Mapping[str, Any], id_of: Callable[[object], object]) -> list[str]:
        entries = answer.get("value")
        ids = [id_of(entry) for entry in entries] if isinstance(entries, list) else [None]
        known = [group.lower() for group in ids if isinstance(group, str) and _GUID.fullmatch(group.lower())]
        if len(known) != len(ids):
            raise AccessError(f"the groups that {self.url} lists cannot be understood; does a proxy or firewall answer?")
        return known

    async def _assigned(self, principal: str) -> Mapping[str, tuple[AttributeScalar, ...]] | None:
        """https://learn.microsoft.com/graph/custom-security-attributes-examples."""
        answer = await self._requests.ask(principal, params={"$select": "id,customSecurityAttributes"}, right=_ATTRIBUTES_RIGHT)
        if answer is None:
            return None
        if str(answer.get("id", "")).lower() != principal.rpartition("/")[2]:
            raise AccessError(f"{self.url} answers with another principal than the one asked for")
        sets = answer.get("customSecurityAttributes")
        if sets is None:
            # So does Graph answer for somebody who has none, and to somebody who may not see them.
            if not _CAN_READ_ATTRIBUTES & self._requests.app_permissions():
                raise ConfigError(f"{self.url} shows no custom security attributes; the identity seems to lack {_ATTRIBUTES_RIGHT}")
            return {}
        try:
            return parse_attributes(_assignments(sets))
        except ValueError as error:
            raise AccessError(f"the custom security attributes that {self.url} gives cannot be understood: {error}") from error


def _assignments(sets: object) -> dict[str, object]:
    """Without nulls, each of which is an attribute that is not assigned. Raises `ValueError` for what holds no sets of attributes."""
    if not isinstance(sets, dict) or not all(isinstance(names, dict) or names is None or "@odata." in key for key, names in sets.items()):
        raise ValueError("they are not in sets")
    found = {key: names for key, names in sets.items() if isinstance(names, dict)}
    return {key: {name: value for name, value in names.items() if value is not None} for key, names in found.items()}
