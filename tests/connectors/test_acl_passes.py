"""Passes over a hierarchical namespace: whatever ACLs say of files and folders is what a search finds, with no write to the store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from ragstore.contracts import Write
from ragstore.errors import ConfigError, TransientError
from ragstore.index import AsyncIndex
from ragstore.ingest.changes import apply_changes
from ragstore.ingest.report import Clocked, SyncReport
from ragstore.ingest.sync import make_spool
from ragstore.models import BlobId
from ragstore.testing.faults import CrashingStore
from tests.fakes.azure_proxy import Fault, refusal
from tests.fakes.dfs import DfsFake
from tests.support.workspace import Workspace, paragraphs

pytestmark = pytest.mark.azurite

OWNER = "0a000000-0000-0000-0000-000000000001"
ADA = "0a000000-0000-0000-0000-000000000002"
BOB = "0a000000-0000-0000-0000-000000000003"
STAFF = "0b000000-0000-0000-0000-000000000001"
OPEN = "user::rwx,group::---,other::r-x"
STAFF_ONLY = f"user::rwx,group::---,group:{STAFF}:r-x,mask::r-x,other::---"
CLOSED = "user::rwx,group::---,other::---"
PRINCIPALS = [{"id": ADA, "name": "Ada", "groups": [STAFF]}, {"id": BOB, "name": "Bob", "groups": []}]
"""Neither has a role assignment."""


@dataclass
class Lake:
    """A container in Azurite with ACLs at a fake dfs endpoint, and an index over it in mode `azure`."""

    work: Workspace
    blobs: ContainerClient
    dfs: DfsFake
    container: str
    written: list[Write] = field(default_factory=list)
    """All that the real store got."""

    def put(self, path: str, entries: str = OPEN) -> None:
        self.blobs.upload_blob(path, paragraphs(path.replace("/", " "), 2).encode(), overwrite=True)
        self.give(path, entries)

    def give(self, path: str, entries: str) -> None:
        self.dfs.set(self.container, path, entries, owner=OWNER, group="$superuser")

    @property
    def writes(self) -> int:
        return len(self.written)

    async def found(self, index: AsyncIndex, who: str) -> set[str]:
        hits = await index.search("paragraph speaks about subject", principal=index.principal(who), limit=50)
        return {hit.blob.partition("/")[2] for hit in hits}


@pytest.fixture
async def lake(azurite: Any, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lake]:
    monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
    async with DfsFake() as dfs:
        work = Workspace(tmp_path, store="lancedb")
        work.sections["source"] = {
            "type": "azure-blob",
            "url": f"{azurite.blob_endpoint}/{container}",
            "connection_string_env": "TEST_CONNECTION",
            "hierarchical": True,
            "dfs_url": dfs.url,
        }
        (tmp_path / "principals.json").write_text(json.dumps(PRINCIPALS), encoding="utf-8")
        (tmp_path / "assignments.json").write_text("[]", encoding="utf-8")
        work.sections["access"] = {
            "mode": "azure",
            "assignments": "assignments.json",
            "deny_assignments": "none",
            "principals": "principals.json",
            "max_age_hours": 48,
        }
        with ContainerClient.from_connection_string(azurite.connection_string, container) as blobs:
            lake = Lake(work=work, blobs=blobs, dfs=dfs, container=container)

            work.connectors.wrapper = lambda store: CrashingStore(store, before=lake.written.extend, after=lambda _writes: None)
            for folder in ("", "a", "a/deep"):
                lake.give(folder, OPEN)
            lake.put("top.md")
            lake.put("a/x.md", STAFF_ONLY)
            lake.put("a/deep/y.md")
            yield lake


async def one_pass(index: AsyncIndex, *, access_only: bool) -> SyncReport:
    return await (index.refresh_access() if access_only else index.sync())


async def test_acls_alone_decide_where_nothing_is_assigned(lake: Lake) -> None:
    async with lake.work.open() as index:
        report = await index.sync()
        assert (report.added, report.acl_reads) == (3, 6)
        assert await lake.found(index, "Ada") == {"top.md", "a/x.md", "a/deep/y.md"}
        assert await lake.found(index, "Bob") == {"top.md", "a/deep/y.md"}


async def test_a_files_changed_acl_hides_it_in_the_next_access_pass_though_its_etag_stays(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        etag = lake.blobs.get_blob_client("top.md").get_blob_properties().etag
        lake.give("top.md", STAFF_ONLY)
        report = await index.refresh_access()
        assert report.retagged == 1
        assert lake.blobs.get_blob_client("top.md").get_blob_properties().etag == etag
        assert "top.md" not in await lake.found(index, "Bob")
        assert "top.md" in await lake.found(index, "Ada")


@pytest.mark.parametrize("access_only", [True, False])
async def test_a_folder_that_is_closed_hides_all_below_it_without_a_write_to_the_store(lake: Lake, access_only: bool) -> None:  # noqa: FBT001
    async with lake.work.open() as index:
        await index.sync()
        before = lake.writes
        lake.give("a", STAFF_ONLY)
        report = await one_pass(index, access_only=access_only)
        assert (lake.writes, report.retagged, report.chunks) == (before, 0, 0)
        assert await lake.found(index, "Bob") == {"top.md"}
        assert await lake.found(index, "Ada") == {"top.md", "a/x.md", "a/deep/y.md"}
        lake.give("a", OPEN)
        await one_pass(index, access_only=access_only)
        assert lake.writes == before
        assert await lake.found(index, "Bob") == {"top.md", "a/deep/y.md"}


async def test_a_closed_root_hides_everything(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        lake.give("", STAFF_ONLY)
        await index.refresh_access()
        assert await lake.found(index, "Bob") == set()
        assert len(await lake.found(index, "Ada")) == 3


async def test_another_process_that_reads_sees_a_closed_folder_at_once(lake: Lake) -> None:
    async with lake.work.open() as writer, lake.work.open() as reader:
        await writer.sync()
        assert "a/deep/y.md" in await lake.found(reader, "Bob")
        lake.give("a/deep", CLOSED)
        await writer.refresh_access()
        assert "a/deep/y.md" not in await lake.found(reader, "Bob")


async def test_a_folder_whose_acl_cannot_be_found_lets_nobody_through(lake: Lake) -> None:
    async with lake.work.open() as index:
        lake.dfs.remove(lake.container, "a")
        await index.sync()
        assert await lake.found(index, "Ada") == {"top.md"}


async def test_a_pass_that_cannot_read_folders_changes_nothing_and_says_so(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        for source in index._assembly.sources():
            source.patience = type(source.patience)(attempts=1)  # type: ignore[attr-defined]
        lake.dfs.add(Fault(matches=lambda request: request.path.endswith("/a"), times=1000, answer=refusal(503, "ServerBusy")))
        with pytest.raises(TransientError, match="ACLs of the folders"):
            await index.refresh_access()
        assert await lake.found(index, "Bob") == {"top.md", "a/deep/y.md"}


async def test_a_plan_says_how_many_acls_will_be_asked_for_and_reads_no_folder(lake: Lake) -> None:
    async with lake.work.open() as index:
        planned = await index.plan()
        assert planned.acl_reads == 6
        assert "" not in lake.dfs.asked
        assert "a" not in lake.dfs.asked
        assert index._assembly.ledger.acls.folders() == []


async def test_without_a_maximum_age_a_hierarchical_namespace_is_refused(lake: Lake) -> None:
    del lake.work.sections["access"]["max_age_hours"]
    async with lake.work.open() as index:
        with pytest.raises(ConfigError, match="max_age_hours"):
            await index.sync()
        with pytest.raises(ConfigError, match="max_age_hours"):
            await index.plan()


async def test_a_blob_that_an_event_tells_of_is_found_in_a_folder_that_no_listing_has_shown(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        lake.give("new", OPEN)
        lake.put("new/z.md")
        lake.put("new/unseen/z.md")
        parts = index._assembly.writing()
        make_spool(parts)
        blobs = [BlobId(account="devstoreaccount1", container=lake.container, path=path) for path in ("new/z.md", "new/unseen/z.md")]
        await apply_changes(parts, Clocked(SyncReport(), None), blobs)
        assert "new/z.md" in await lake.found(index, "Bob")
        assert "new/unseen/z.md" not in await lake.found(index, "Ada")


async def test_a_blob_that_an_event_tells_of_waits_behind_a_folder_that_cannot_be_read_now(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        for source in index._assembly.sources():
            source.patience = type(source.patience)(attempts=1)  # type: ignore[attr-defined]
        lake.give("new", OPEN)
        lake.put("new/z.md")
        lake.dfs.add(Fault(matches=lambda request: request.path.endswith("/new"), answer=refusal(503, "ServerBusy")))
        parts = index._assembly.writing()
        make_spool(parts)
        report = SyncReport()
        await apply_changes(parts, Clocked(report, None), [BlobId(account="devstoreaccount1", container=lake.container, path="new/z.md")])
        assert report.added == 1
        assert "ACLs of the folders" in report.warnings[0]
        assert "new/z.md" not in await lake.found(index, "Ada")
        await index.refresh_access()
        assert "new/z.md" in await lake.found(index, "Ada")


async def test_a_blob_that_moves_to_a_closed_folder_is_hidden_there(lake: Lake) -> None:
    async with lake.work.open() as index:
        await index.sync()
        lake.give("closed", CLOSED)
        lake.blobs.delete_blob("top.md")
        lake.put("closed/top.md")
        await index.sync()
        assert await lake.found(index, "Bob") == {"a/deep/y.md"}
