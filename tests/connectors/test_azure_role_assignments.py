"""Index tags in Azurite and conditions on them: what a changed tag takes away is gone with the pass that sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from tests.support.azure_files import BLOBS, assigned
from tests.support.azure_files import container as scope_of
from tests.support.azurite import Azurite
from tests.support.workspace import Workspace, found, paragraphs

pytestmark = pytest.mark.azurite

PROJECT = f"@Resource[{BLOBS}/tags:Project<$key_case_sensitive$>]"
GUARD = f"!(ActionMatches{{'{BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}})"


@pytest.fixture
def client(azurite: Azurite, container: str) -> Iterator[ContainerClient]:
    with ContainerClient.from_connection_string(azurite.connection_string, container) as client:
        yield client


@pytest.fixture
def work(azurite: Azurite, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
    source = {"type": "azure-blob", "url": f"{azurite.blob_endpoint}/{container}", "connection_string_env": "TEST_CONNECTION"}
    access = {"mode": "azure", "assignments": "assignments.json", "deny_assignments": "none", "principals": "principals.json"}
    scope = scope_of(container, azurite.account_name)
    assignments = [assigned("staff", scope=scope, condition=f"{GUARD} OR {PROJECT} StringEquals 'Cascade'"), assigned("board", scope=scope)]
    (tmp_path / "assignments.json").write_text(json.dumps(assignments), encoding="utf-8")
    return Workspace(tmp_path, store="lancedb", source=source, access=access)


async def test_a_condition_on_an_index_tag_decides_and_a_tag_that_changes_takes_away(work: Workspace, client: ContainerClient) -> None:
    client.upload_blob("a.txt", paragraphs("alpha", 3).encode(), tags={"Project": "Cascade"})
    client.upload_blob("b.txt", paragraphs("beta", 3).encode(), tags={"Project": "cascade"})
    client.upload_blob("c.txt", paragraphs("gamma", 3).encode())
    async with work.open() as index:
        await index.sync()
        assert {hit.blob.partition("/")[2] for hit in await found(index, "paragraph", "Bob", limit=20)} == {"a.txt"}
        assert {hit.blob.partition("/")[2] for hit in await found(index, "paragraph", "Ada", limit=20)} == {"a.txt", "b.txt", "c.txt"}
        assert await found(index, "paragraph", "Eve") == []
        etag = client.get_blob_client("a.txt").get_blob_properties().etag
        client.get_blob_client("a.txt").set_blob_tags({"Project": "Baker"})
        assert client.get_blob_client("a.txt").get_blob_properties().etag == etag
        assert (await index.sync()).retagged == 1
        assert await found(index, "paragraph", "Bob") == []
