"""ACLs of a hierarchical namespace: blobs come from Azurite, which has none, and ACLs from a fake dfs endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.storage.blob.aio import ContainerClient

from ragstore.access.acl import UNREADABLE, acl_text
from ragstore.contracts import AclSource
from ragstore.errors import ConfigError, TransientError
from ragstore.testing.sources import listed
from ragstore_azure import AzureBlobSource
from ragstore_azure.address import dfs_endpoint
from ragstore_azure.retries import Patience
from ragstore_folder import FolderSource
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, Response, refusal, with_headers, with_text
from tests.fakes.dfs import MOST_ENTRIES, DfsFake

if TYPE_CHECKING:
    from tests.conftest import Azurite

OWNER = "0a000000-0000-0000-0000-000000000001"
GROUP = "0b000000-0000-0000-0000-000000000001"
ENTRIES = "user::rwx,group::r-x,other::---"
OTHERS = "user::rwx,group::r-x,other::r-x"
MANY = 1000

azurite_test = pytest.mark.azurite


def text_of(entries: str, owner: str = OWNER) -> str:
    return acl_text(owner=owner, group=GROUP, permissions=None, acl=entries)


@dataclass
class Place:
    """A container, its dfs endpoint, and a source over both."""

    container: str
    blobs: ContainerClient
    dfs: DfsFake
    proxy: AzureProxy
    open: Callable[..., AzureBlobSource]
    source: AzureBlobSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = self.open()

    def set(self, path: str, entries: str = ENTRIES, owner: str = OWNER) -> None:
        self.dfs.set(self.container, path, entries, owner=owner, group=GROUP)


@pytest.fixture
async def place(azurite: Azurite, container: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setenv("A_KEY", azurite.account_key)
    opened: list[AzureBlobSource] = []
    async with (
        AzureProxy(azurite.port) as proxy,
        DfsFake() as dfs,
        ContainerClient.from_connection_string(azurite.connection_string, container) as blobs,
    ):

        def open_(**options: Any) -> AzureBlobSource:
            url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/{container}"
            source = AzureBlobSource(**{"url": url, "account_key_env": "A_KEY", "hierarchical": True, "dfs_url": dfs.url, **options})
            source.patience = Patience(attempts=3, first_pause=0.01)
            opened.append(source)
            return source

        yield Place(container=container, blobs=blobs, dfs=dfs, proxy=proxy, open=open_)
        for source in opened:
            await source.close()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@azurite_test
async def test_a_listing_a_look_and_a_fetch_have_the_acl_of_the_file(place: Place, spool: Path) -> None:
    await place.blobs.upload_blob("a/x.md", b"x")
    place.set("a/x.md", f"{ENTRIES},default:user::rwx,default:group::rwx,default:other::rwx")
    found = (await listed(place.source))["a/x.md"]
    fetched = await place.source.fetch("a/x.md", spool)
    assert fetched is not None
    assert found == fetched.state == await place.source.state("a/x.md")
    assert found.access.acl == text_of(ENTRIES)
    assert not any(request.is_tags or "tags" in request.query.get("include", "") for request in place.proxy.requests)


@azurite_test
async def test_the_acl_is_read_after_the_content(place: Place, spool: Path) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.set("x.md", OTHERS)

    async def close() -> None:
        place.set("x.md", ENTRIES)

    place.proxy.add(Fault(matches=lambda request: request.is_download, before=close))
    fetched = await place.source.fetch("x.md", spool)
    assert fetched is not None
    assert fetched.state.access.acl == text_of(ENTRIES)


@azurite_test
async def test_a_blob_that_is_rewritten_while_its_acl_is_read_is_fetched_again(place: Place, spool: Path) -> None:
    """An ACL of the new content must never be paired with the old one."""
    await place.blobs.upload_blob("x.md", b"secret")
    place.set("x.md", ENTRIES)

    async def replace_by_something_open() -> None:
        await place.blobs.upload_blob("x.md", b"public", overwrite=True)
        place.set("x.md", OTHERS)

    place.dfs.add(Fault(matches=lambda request: True, before=replace_by_something_open))
    fetched = await place.source.fetch("x.md", spool)
    assert fetched is not None
    with fetched.content.open("rb") as file:
        assert (file.read(), fetched.state.access.acl) == (b"public", text_of(OTHERS))


@azurite_test
async def test_a_changed_acl_is_seen_though_the_etag_stays(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.set("x.md", OTHERS)
    before = (await listed(place.source))["x.md"]
    place.set("x.md", ENTRIES)
    after = (await listed(place.source))["x.md"]
    assert before.etag == after.etag
    assert (before.access.acl, after.access.acl) == (text_of(OTHERS), text_of(ENTRIES))


@azurite_test
async def test_a_file_without_a_readable_acl_has_one_that_grants_nothing(place: Place) -> None:
    await place.blobs.upload_blob("gone.md", b"x")
    await place.blobs.upload_blob("odd.md", b"x")
    place.set("odd.md", "user::rwx,group::r-x,other::r-x,robot:x:rwx")
    found = await listed(place.source)
    assert {path: state.access.acl for path, state in found.items()} == {"gone.md": UNREADABLE, "odd.md": UNREADABLE}
    assert await place.source.state("gone.md") is None


@azurite_test
async def test_folders_are_asked_each_once_and_one_that_is_gone_lets_nobody_through(place: Place) -> None:
    place.set("")
    place.set("a b/é%20+?#", OTHERS)
    found = await place.source.folder_acls({"", "a b/é%20+?#", "gone", "a/../b"})
    assert found == {"": text_of(ENTRIES), "a b/é%20+?#": text_of(OTHERS), "gone": UNREADABLE, "a/../b": UNREADABLE}
    assert sorted(place.dfs.asked) == ["", "a b/é%20+?#", "gone"]
    assert place.source.acl_reads == 3


@azurite_test
async def test_many_paths_are_asked_for_at_once_but_not_all(place: Place) -> None:
    for number in range(100):
        place.set(f"f{number}")
    found = await place.source.folder_acls({f"f{number}" for number in range(100)})
    assert set(found.values()) == {text_of(ENTRIES)}
    assert len(place.dfs.requests) == place.source.acl_reads == 100


@azurite_test
async def test_a_listing_that_tells_acls_saves_asking_for_them(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    told = f"<Owner>{OWNER}</Owner><Group>{GROUP}</Group><Permissions>rwxr-x---</Permissions><Acl>{ENTRIES}</Acl>"
    place.proxy.add(
        Fault(
            matches=lambda request: "permissions" in request.query.get("include", ""),
            times=MANY,
            rewrite=with_text("</Properties>", f"{told}</Properties>"),
        )
    )
    assert (await listed(place.source))["x.md"].access.acl == text_of(ENTRIES)
    assert place.dfs.requests == []


@azurite_test
async def test_a_head_that_tells_the_acl_saves_asking_for_it_and_shows_what_kind_of_account_it_is(place: Place, spool: Path) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    headers = {"x-ms-owner": OWNER, "x-ms-group": GROUP, "x-ms-permissions": "rwxr-x---", "x-ms-acl": ENTRIES}
    place.proxy.add(Fault(matches=lambda request: request.method == "HEAD", times=MANY, rewrite=with_headers(headers)))
    source = place.open(hierarchical=None)
    fetched = await source.fetch("x.md", spool)
    assert fetched is not None
    assert fetched.state.access.acl == text_of(ENTRIES)
    assert await source.hierarchical()
    assert place.dfs.requests == []
    flat = await place.open(hierarchical=False).state("x.md")
    assert flat is not None
    assert flat.access.acl is None


@azurite_test
async def test_a_head_without_the_owner_is_not_enough(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.set("x.md", ENTRIES)
    place.proxy.add(Fault(matches=lambda request: request.method == "HEAD", times=MANY, rewrite=with_headers({"x-ms-acl": OTHERS})))
    state = await place.source.state("x.md")
    assert state is not None
    assert state.access.acl == text_of(ENTRIES)


@azurite_test
@pytest.mark.parametrize(("said", "expected"), [("true", True), ("false", False)])
async def test_the_service_is_asked_what_kind_of_account_it_is(place: Place, said: str, expected: bool) -> None:  # noqa: FBT001
    place.proxy.add(Fault(matches=_about_the_account, times=1, rewrite=with_headers({"x-ms-is-hns-enabled": said})))
    source = place.open(hierarchical=None)
    assert await source.hierarchical() == expected
    assert await source.hierarchical() == expected
    assert sum(map(_about_the_account, place.proxy.requests)) == 1


def _about_the_account(request: Request) -> bool:
    return request.query.get("comp") == "properties"


@azurite_test
async def test_whoever_may_not_ask_that_looks_at_a_blob(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.set("x.md", ENTRIES)
    place.proxy.add(Fault(matches=_about_the_account, times=MANY, answer=refusal(403, "AuthorizationPermissionMismatch")))
    place.proxy.add(Fault(matches=lambda request: request.method == "HEAD", times=MANY, rewrite=with_headers({"x-ms-owner": OWNER})))
    assert (await listed(place.open(hierarchical=None)))["x.md"].access.acl == text_of(ENTRIES)


@azurite_test
async def test_an_outage_is_no_answer_to_what_kind_of_account_it_is(place: Place) -> None:
    place.proxy.add(Fault(matches=_about_the_account, times=MANY, answer=refusal(503, "ServerBusy")))
    with pytest.raises(TransientError):
        await place.open(hierarchical=None).hierarchical()


@azurite_test
async def test_throttling_at_the_dfs_endpoint_is_waited_for(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.set("x.md")
    busy = Response(status=503, headers={"x-ms-error-code": "ServerBusy", "Retry-After": "0"})
    place.dfs.add(Fault(matches=lambda request: True, times=2, answer=busy))
    assert (await listed(place.source))["x.md"].access.acl == text_of(ENTRIES)


@azurite_test
async def test_a_dfs_endpoint_that_is_down_ends_the_listing_and_nothing_is_guessed(place: Place) -> None:
    await place.blobs.upload_blob("x.md", b"x")
    place.dfs.add(Fault(matches=lambda request: True, times=MANY, answer=refusal(503, "ServerBusy")))
    with pytest.raises(TransientError):
        await listed(place.source)
    with pytest.raises(TransientError):
        await place.source.folder_acls({""})


@azurite_test
async def test_a_missing_right_names_the_role(place: Place) -> None:
    place.dfs.refused.add("a")
    with pytest.raises(ConfigError, match="Storage Blob Data Reader"):
        await place.source.folder_acls({"a"})


@azurite_test
async def test_an_endpoint_that_cannot_be_told_has_to_be_named(place: Place) -> None:
    with pytest.raises(ConfigError, match="dfs_url"):
        await place.open(dfs_url=None).folder_acls({""})


async def test_the_azure_source_alone_reads_acls(tmp_path: Path) -> None:
    source = AzureBlobSource(url="https://acme.blob.core.windows.net/docs")
    assert isinstance(source, AclSource)
    assert not isinstance(FolderSource(base=tmp_path, path="."), AclSource)
    await source.close()


@pytest.mark.parametrize(
    ("blob", "dfs"),
    [
        ("https://acme.blob.core.windows.net", "https://acme.dfs.core.windows.net"),
        ("https://acme.z12.blob.storage.azure.net", "https://acme.z12.dfs.storage.azure.net"),
        ("https://acme.privatelink.blob.core.windows.net", "https://acme.privatelink.dfs.core.windows.net"),
        ("https://acme.blob.core.chinacloudapi.cn:443", "https://acme.dfs.core.chinacloudapi.cn:443"),
        ("http://127.0.0.1:10000/devstoreaccount1", None),
        ("https://files.example.com", None),
    ],
)
def test_the_dfs_endpoint_is_derived_from_that_of_blobs(blob: str, dfs: str | None) -> None:
    assert dfs_endpoint(blob) == dfs


def test_the_fake_refuses_what_the_service_refuses() -> None:
    fake = DfsFake()
    many = ",".join(f"user:u{number}:r--" for number in range(MOST_ENTRIES - 4))
    fake.set("c", "a", f"{ENTRIES},mask::rwx,{many}")
    with pytest.raises(ValueError, match="at most 32"):
        fake.set("c", "a", f"{ENTRIES},mask::rwx,{many},user:x:r--")
    with pytest.raises(ValueError, match="needs the entries"):
        fake.set("c", "a", "user::rwx,other::---")
