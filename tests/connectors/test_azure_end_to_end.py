"""A container in Azurite, followed by passes: index, edit, retag, rename, delete, run again; with the index on disk and on `az://`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from ragstore.errors import ConfigError
from tests.support.workspace import Workspace, found, paragraphs, texts

pytestmark = pytest.mark.azurite


class Container:
    """Writes blobs around the source under test."""

    def __init__(self, client: ContainerClient) -> None:
        self.client = client

    def put(self, path: str, text: str, *, allow: str = "staff", metadata: dict[str, str] | None = None) -> None:
        self.client.upload_blob(path, text.encode(), overwrite=True, tags={"allow": allow} if allow else None, metadata=metadata)

    def retag(self, path: str, allow: str) -> None:
        self.client.get_blob_client(path).set_blob_tags({"allow": allow})

    def rename(self, old: str, new: str) -> None:
        """As clients do it on a flat account: copy, then delete; tags go along."""
        source = self.client.get_blob_client(old)
        copy = self.client.get_blob_client(new)
        copy.upload_blob(source.download_blob().readall(), tags=source.get_blob_tags())
        source.delete_blob()


@pytest.fixture
def blobs(azurite: Any, container: str) -> Iterator[Container]:
    with ContainerClient.from_connection_string(azurite.connection_string, container) as client:
        yield Container(client)


@pytest.fixture(params=["disk", "az://"])
def work(
    request: pytest.FixtureRequest, azurite: Any, container: str, blobs: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
    work = Workspace(tmp_path, store="lancedb")
    work.sections["source"] = {
        "type": "azure-blob",
        "url": f"{azurite.blob_endpoint}/{container}",
        "connection_string_env": "TEST_CONNECTION",
    }
    if request.param == "az://":
        store = f"index-{uuid.uuid4().hex[:12]}"
        with ContainerClient.from_connection_string(azurite.connection_string, store) as client:
            client.create_container()
        work.sections["store"] = {"type": "lancedb", "path": f"az://{store}/deep/index", "connection_string_env": "TEST_CONNECTION"}
    return work


async def test_a_container_is_followed_through_every_kind_of_change(work: Workspace, blobs: Container, container: str) -> None:
    for name in ("one", "two", "three"):
        blobs.put(f"folder/{name}.md", f"# {name}\n\n" + paragraphs(name, 6))
    blobs.put("secret.txt", paragraphs("secret", 3), allow="board")
    async with work.open() as index:
        first = await index.sync()
        assert (first.added, first.quarantined) == (4, 0)
        assert await texts(index, "secret", "Bob", filter="path = 'secret.txt'") == []
        assert len(await texts(index, "secret", "Ada", filter="path = 'secret.txt'")) == 3
        before = len(work.embedded)

        blobs.put("folder/one.md", "# one\n\n" + paragraphs("one", 6).replace("number3", "number3 edited"))
        blobs.retag("secret.txt", "staff")
        blobs.rename("folder/two.md", "moved/two.md")
        blobs.client.delete_blob("folder/three.md")
        blobs.put("copy.txt", paragraphs("secret", 3), allow="board")
        plan, report = await index.plan(), await index.sync()
        assert (report.changed, report.retagged, report.moved, report.deleted, report.added) == (1, 1, 1, 1, 1)
        assert (plan.changed, plan.retagged, plan.moved, plan.deleted, plan.added) == (1, 1, 1, 1, 1)
        assert len(work.embedded) == before + 1
        assert len(await texts(index, "secret", "Bob", filter="path = 'secret.txt'")) == 3
        assert {hit.blob for hit in await found(index, "two", "Bob", filter="path starts with 'moved/'")} == {f"{container}/moved/two.md"}
        assert await found(index, "three", "Bob", filter="path = 'folder/three.md'") == []

        again = await index.sync()
        assert (again.unchanged, again.chunks, len(work.embedded)) == (4, 0, before + 1)
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_new_metadata_is_a_retag_although_the_etag_changed(work: Workspace, blobs: Container) -> None:
    work.sections["access"] = {"mode": "groups", "metadata_key": "Allow", "principals": "principals.json"}
    blobs.put("a.txt", paragraphs("alpha", 3), metadata={"allow": "staff,board"})
    async with work.open() as index:
        await index.sync()
        assert len(await texts(index, "alpha", "Bob")) == 3
        before = len(work.embedded)
        blobs.client.get_blob_client("a.txt").set_blob_metadata({"allow": "board"})
        report = await index.sync()
        assert (report.retagged, report.changed, len(work.embedded)) == (1, 0, before)
        assert await texts(index, "alpha", "Bob") == []


async def test_a_container_that_is_gone_deletes_nothing(work: Workspace, blobs: Container) -> None:
    blobs.put("a.txt", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        blobs.client.delete_container()
        with pytest.raises(ConfigError):
            await index.sync()
        assert len(await texts(index, "alpha", "Bob")) == 3
