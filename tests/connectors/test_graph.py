"""A Microsoft Graph on this machine in; what the directory makes of its answers, pages, refusals and silence out."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from ragstore import plugins
from ragstore.access.claims import principal_of_claims
from ragstore.access.directory import CachedDirectory
from ragstore.assembly import Connectors
from ragstore.blocking import Index
from ragstore.config import Settings, from_mapping
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError, ConfigError, TransientError
from ragstore.models import Principal
from ragstore_azure import GraphDirectory
from tests.fakes.graph import ATTRIBUTES, GROUPS, Account, Answer, GraphServer, TokenSource

ALICE = "0a1b2c3d-0000-4000-8000-00000000000f"
INDEXER = "0a1b2c3d-0000-4000-8000-00000000000e"
NOBODY = "0a1b2c3d-0000-4000-8000-00000000000d"
MANY = [f"5a1b2c3d-0000-4000-8000-{number:012x}" for number in range(2500)]
SETS = {
    "@odata.type": "#microsoft.graph.customSecurityAttributeValue",
    "Engineering": {
        "@odata.type": "#Microsoft.DirectoryServices.CustomSecurityAttributeValue",
        "Project@odata.type": "#Collection(String)",
        "Project": ["Baker", "Cascade"],
        "NumVendors@odata.type": "#Int32",
        "NumVendors": 4,
        "Certification": True,
        "ProjectDate": None,
    },
    "Marketing": None,
}

Open = Callable[..., GraphDirectory]


@pytest.fixture
def graph() -> Iterator[GraphServer]:
    with GraphServer() as server:
        server.users[ALICE] = Account(groups=MANY[:3], attributes=SETS)
        server.service_principals[INDEXER] = Account(groups=MANY[3:5])
        yield server


@pytest.fixture
async def open_directory(graph: GraphServer) -> AsyncIterator[Open]:
    """Opens directories whose token has these permissions; closes them in the end."""
    opened: list[GraphDirectory] = []

    def open_(*permissions: str, **options: Any) -> GraphDirectory:
        given = {"url": graph.url, "credential": graph.credential(*(permissions or (GROUPS, ATTRIBUTES))), "seconds": 2.0, **options}
        opened.append(GraphDirectory(**given))
        return opened[-1]

    yield open_
    for directory in opened:
        await directory.close()


def body(document: object) -> Answer:
    return Answer(body=document if isinstance(document, bytes) else json.dumps(document).encode())


@pytest.mark.parametrize("membership", ["transitiveMemberOf", "getMemberGroups"])
async def test_the_groups_of_a_user_and_of_an_app_are_found(open_directory: Open, membership: str) -> None:
    directory = open_directory(membership=membership)
    assert await directory.groups(ALICE.upper()) == set(MANY[:3])
    assert await directory.groups(INDEXER) == set(MANY[3:5])


async def test_all_pages_are_read(graph: GraphServer, open_directory: Open) -> None:
    graph.users[ALICE] = Account(groups=MANY)
    assert await open_directory().groups(ALICE) == set(MANY)
    assert len(graph.requests) == 3


async def test_no_groups_are_no_groups(graph: GraphServer, open_directory: Open) -> None:
    graph.users[ALICE] = Account()
    assert await open_directory().groups(ALICE) == frozenset()


@pytest.mark.parametrize("membership", ["transitiveMemberOf", "getMemberGroups"])
async def test_an_unknown_principal_is_an_error_and_not_one_without_groups(open_directory: Open, membership: str) -> None:
    directory = open_directory(membership=membership)
    with pytest.raises(AccessError, match="neither a user nor an app"):
        await directory.groups(NOBODY)
    with pytest.raises(AccessError, match="neither a user nor an app"):
        await directory.attributes(NOBODY)


@pytest.mark.parametrize("name", ["alice@example.com", "me", "", "..", f"{ALICE}/memberOf", f"{ALICE}?$select=id", f"{ALICE}\n"])
async def test_only_object_ids_are_asked_for(graph: GraphServer, open_directory: Open, name: str) -> None:
    directory = open_directory()
    for ask in (directory.groups, directory.attributes):
        with pytest.raises(AccessError, match="object id"):
            await ask(name)
    assert graph.requests == []


async def test_attributes_keep_their_types_and_what_is_not_assigned_is_left_out(open_directory: Open) -> None:
    found = await open_directory().attributes(ALICE)
    assert found == {"Engineering_Project": ("Baker", "Cascade"), "Engineering_NumVendors": (4,), "Engineering_Certification": (True,)}
    assert found["Engineering_Certification"][0] is True


async def test_nobody_who_may_not_see_attributes_takes_them_for_none(graph: GraphServer, open_directory: Open) -> None:
    assert await open_directory(ATTRIBUTES).attributes(INDEXER) == {}
    for credential in (graph.credential(GROUPS), TokenSource("opaque")):
        graph.answers = [body({"id": ALICE, "customSecurityAttributes": None})]
        with pytest.raises(ConfigError, match=ATTRIBUTES.replace(".", r"\.")):
            await open_directory(credential=credential).attributes(ALICE)


async def test_attributes_are_not_asked_for_where_they_are_turned_off(graph: GraphServer, open_directory: Open) -> None:
    assert await open_directory(attributes=False).attributes(ALICE) == {}
    assert graph.requests == []


@pytest.mark.parametrize("membership", ["transitiveMemberOf", "getMemberGroups"])
async def test_a_missing_permission_is_named(open_directory: Open, membership: str) -> None:
    with pytest.raises(ConfigError, match=GROUPS.replace(".", r"\.")):
        await open_directory("User.Read.All", membership=membership).groups(ALICE)


async def test_a_refusal_of_attributes_names_their_permission(graph: GraphServer, open_directory: Open) -> None:
    graph.answers = [Answer(status=403, code="Authorization_RequestDenied")]
    with pytest.raises(ConfigError, match=ATTRIBUTES.replace(".", r"\.")):
        await open_directory().attributes(ALICE)


async def test_a_token_for_somewhere_else_is_refused(open_directory: Open) -> None:
    with pytest.raises(ConfigError, match="token is not accepted"):
        await open_directory(credential=TokenSource("nonsense")).groups(ALICE)


async def test_the_token_is_that_for_this_graph(graph: GraphServer, open_directory: Open) -> None:
    credential = graph.credential(GROUPS)
    await open_directory(credential=credential).groups(ALICE)
    assert credential.scopes == [f"{graph.url}/.default"]
    assert not credential.closed


@pytest.mark.parametrize(("status", "seconds"), [(429, 1), (503, 0), (504, 0)])
async def test_throttling_is_waited_for_as_long_as_asked(graph: GraphServer, open_directory: Open, status: int, seconds: int) -> None:
    graph.answers = [Answer(status=status, code="TooManyRequests", headers={"Retry-After": str(seconds)})]
    before = asyncio.get_running_loop().time()
    assert await open_directory().groups(ALICE) == set(MANY[:3])
    assert asyncio.get_running_loop().time() - before >= seconds


async def test_patience_has_an_end(graph: GraphServer, open_directory: Open) -> None:
    graph.answers = [Answer(status=429, headers={"Retry-After": "300"})] * 2
    directory = open_directory()
    with pytest.raises(TransientError) as raised:
        await directory.groups(ALICE)
    assert raised.value.retry_after == 300
    with pytest.raises(AccessError, match="cannot be reached"):
        await CachedDirectory(directory).groups(ALICE)


async def test_a_page_in_the_middle_that_fails_gives_no_groups(graph: GraphServer, open_directory: Open) -> None:
    graph.largest_page = 2
    graph.answers = [
        body({"value": [{"id": MANY[0]}], "@odata.nextLink": f"{graph.url}/v1.0/next"}),
        Answer(status=404, code="Request_ResourceNotFound"),
    ]
    with pytest.raises(AccessError, match="forgot"):
        await open_directory().groups(ALICE)


async def test_a_link_to_somewhere_else_is_not_followed(graph: GraphServer, open_directory: Open) -> None:
    with GraphServer() as other:
        host = graph.url.removeprefix("http://")
        for link in (
            f"{other.url}/v1.0/users",
            f"https://{host}/v1.0/users",
            f"{graph.url}@{other.url.removeprefix('http://')}/v1.0/users",
            f"http://user@{host}/v1.0/users",
            f"{graph.url}/beta/users",
            "/v1.0/users",
            "http://[",
            7,
            None,
        ):
            graph.answers = [body({"value": [], "@odata.nextLink": link})]
            with pytest.raises(AccessError, match="not followed"):
                await open_directory().groups(ALICE)
        assert other.requests == []


async def test_a_redirect_is_not_followed(graph: GraphServer, open_directory: Open) -> None:
    with GraphServer() as other:
        graph.answers = [Answer(status=302, headers={"Location": f"{other.url}/v1.0/users/{ALICE}"})]
        with pytest.raises(ConfigError, match="302"):
            await open_directory().groups(ALICE)
        assert other.requests == []


async def test_pages_without_end_are_an_error(graph: GraphServer, open_directory: Open) -> None:
    graph.next_links = [f"{graph.url}/v1.0/users/{ALICE}/transitiveMemberOf/microsoft.graph.group?$top=1&$count=true"] * 300
    with pytest.raises(AccessError, match="without end"):
        await open_directory().groups(ALICE)


NONSENSE: list[Any] = [
    b"",
    b"<html>",
    b"[]",
    b"null",
    {},
    {"value": None},
    {"value": {}},
    {"value": ["x"]},
    {"value": [{}]},
    {"value": [{"id": None}]},
    {"value": [{"id": MANY[0]}, {"id": "staff"}]},
    {"value": [MANY[0], {"id": MANY[0]}, 7]},
]


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
@pytest.mark.parametrize("membership", ["transitiveMemberOf", "getMemberGroups"])
async def test_an_answer_that_makes_no_sense_gives_no_groups(
    graph: GraphServer, open_directory: Open, answer: Any, membership: str
) -> None:
    graph.answers = [body(answer)]
    with pytest.raises(AccessError, match="cannot be understood"):
        await open_directory(membership=membership).groups(ALICE)


@pytest.mark.parametrize(
    "sets", [[], "x", 7, {"Eng": "x"}, {"Eng": {"P": 1.5}}, {"Eng": {"P": "a", "p": "b"}}, {"Eng": {"P": {}}}], ids=str
)
async def test_attributes_that_make_no_sense_are_an_error(graph: GraphServer, open_directory: Open, sets: Any) -> None:
    graph.answers = [body({"id": ALICE, "customSecurityAttributes": sets})]
    with pytest.raises(AccessError, match="cannot be understood"):
        await open_directory().attributes(ALICE)


async def test_the_attributes_of_somebody_else_are_not_taken(graph: GraphServer, open_directory: Open) -> None:
    graph.answers = [body({"id": NOBODY, "customSecurityAttributes": {}})]
    with pytest.raises(AccessError, match="another principal"):
        await open_directory().attributes(ALICE)


async def test_a_404_that_is_not_of_graph_is_no_unknown_principal(graph: GraphServer, open_directory: Open) -> None:
    graph.answers = [Answer(status=404, body=b"<html>")] * 20
    with pytest.raises(TransientError, match="proxy"):
        await open_directory(seconds=0.1).groups(ALICE)


async def test_more_groups_than_are_given_at_once_name_the_other_way(graph: GraphServer, open_directory: Open) -> None:
    graph.users[ALICE] = Account(groups=[*MANY] * 5)
    with pytest.raises(ConfigError, match="membership = 'transitiveMemberOf'"):
        await open_directory(membership="getMemberGroups").groups(ALICE)


async def test_a_graph_that_is_not_there_is_an_outage(graph: GraphServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    directory = GraphDirectory(url=f"http://127.0.0.1:{port}", seconds=0, credential=graph.credential(GROUPS))
    with pytest.raises(TransientError, match="cannot be reached"):
        await directory.groups(ALICE)
    await directory.close()


@pytest.mark.parametrize(
    "url", ["http://graph.microsoft.com", "ftp://x", "graph.microsoft.com", "https://", "https://u:p@x", "https://x/v1.0", "https://x?a=b"]
)
def test_a_url_to_which_no_token_should_go_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError, match="url = ") as raised:
        GraphDirectory(url=url)
    assert "a=b" not in str(raised.value)


def test_patience_without_end_is_an_error() -> None:
    with pytest.raises(ConfigError, match="seconds"):
        GraphDirectory(seconds=float("inf"))


async def test_a_token_with_an_overage_marker_leads_to_all_groups(graph: GraphServer, open_directory: Open) -> None:
    graph.users[ALICE] = Account(groups=MANY, attributes=SETS)
    directory = CachedDirectory(open_directory())
    claims = {"oid": ALICE, "name": "Alice", "_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}
    first, second = await asyncio.gather(principal_of_claims(claims, directory), principal_of_claims(claims, directory))
    assert first == second
    assert first.groups == set(MANY)
    assert first.attributes["Engineering_NumVendors"] == (4,)
    assert len(graph.requests) == 4


class LetIn(Connectors):
    """Opens the directory with a token instead of asking azure-identity."""

    def __init__(self, credential: TokenSource) -> None:
        self.credential = credential

    @override
    def directory(self, kind: str, options: Mapping[str, Any], settings: Settings) -> GroupResolver:
        built: GroupResolver = plugins.build("directories", kind, options, base=settings.base, credential=self.credential)
        return built


def settings_of(folder: Path, access: Mapping[str, Any]) -> Settings:
    return from_mapping({"access": {"mode": "open", **access}, "store": {"type": "memory"}}, base=folder, environ={})


def test_an_index_asks_the_configured_directory_and_keeps_the_answer(graph: GraphServer, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, {"graph": {"url": graph.url, "attributes": False, "cache_seconds": 60}})
    with Index(settings, connectors=LetIn(graph.credential(GROUPS))) as index:
        for _ in range(2):
            alice = index.principal_of_claims({"oid": ALICE, "hasgroups": True}, environment={"isPrivateLink": True})
            assert alice == Principal(id=ALICE, name=ALICE, groups=frozenset(MANY[:3]), environment={"isPrivateLink": True})
    assert len(graph.requests) == 1


def test_an_index_without_a_directory_takes_what_a_token_says_and_nothing_less(tmp_path: Path) -> None:
    with Index(settings_of(tmp_path, {})) as index:
        assert index.principal_of_claims({"oid": ALICE, "groups": MANY[:1]}).groups == set(MANY[:1])
        with pytest.raises(AccessError, match=r"access\.graph"):
            index.principal_of_claims({"oid": ALICE, "hasgroups": True})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"cache_seconds": "5 minutes"}, "cache_seconds"),
        ({"cache_seconds": -1}, "0 to 86400"),
        ({"type": "grap"}, "no directory of type 'grap'; did you mean 'graph'"),
        ({"membreship": "x"}, r"\[access.graph\] type = 'graph' has no option 'membreship'; did you mean 'membership'"),
        ({"membership": "memberOf"}, r"\[access.graph\] type = 'graph': membership"),
        ({"credential": "secret"}, "no option 'credential'"),
    ],
)
def test_a_directory_that_is_configured_wrongly_says_where(tmp_path: Path, section: dict[str, Any], message: str) -> None:
    with Index(settings_of(tmp_path, {"graph": section})) as index, pytest.raises(ConfigError, match=message):
        index.principal_of_claims({"oid": ALICE, "groups": []})


def test_a_directory_is_configured_in_a_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write \[access\.graph\]"):
        settings_of(tmp_path, {"graph": "graph"})
