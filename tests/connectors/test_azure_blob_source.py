from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from azure.storage.blob import BlobType, ContainerSasPermissions, ContentSettings, StandardBlobTier, generate_container_sas
from azure.storage.blob.aio import ContainerClient
from typing_extensions import override

from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.plugins import build
from ragstore.testing.sources import OpenSource, SourceOptions, SourceSuite, listed
from ragstore_azure import AzureBlobSource
from ragstore_azure.download import RANGE_BYTES
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite


class ContainerWriter:
    """Writes blobs with the SDK."""

    def __init__(self, client: ContainerClient) -> None:
        self.client = client

    async def put(self, path: str, content: bytes, tags: Mapping[str, str] | None = None) -> None:
        await self.client.upload_blob(path, content, overwrite=True, tags=dict(tags) if tags else None)

    async def delete(self, path: str) -> None:
        await self.client.delete_blob(path)

    async def tag(self, path: str, tags: Mapping[str, str]) -> None:
        await self.client.get_blob_client(path).set_blob_tags(dict(tags))

    async def annotate(self, path: str, metadata: Mapping[str, str]) -> None:
        await self.client.get_blob_client(path).set_blob_metadata(dict(metadata))


@pytest.fixture(autouse=True)
def _secret(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURITE_CONNECTION", azurite.connection_string)


@pytest.fixture
async def writer(azurite: Azurite, container: str) -> AsyncIterator[ContainerWriter]:
    # In blocks, because aiohttp warns of larger bodies of bytes.
    async with ContainerClient.from_connection_string(
        azurite.connection_string, container, max_single_put_size=2**19, max_block_size=2**19
    ) as client:
        yield ContainerWriter(client)


class TestAzureBlobSource(SourceSuite):
    odd_names: ClassVar[tuple[str, ...]] = (
        *(name for name in SourceSuite.odd_names if "\\" not in name),
        "a//b",
        "/leading",
        "trailing/",
        "a./b",
        "...",
        "line\nbreak",
        "%",
        "%zz",
        "n" * 1024,
    )

    @pytest.fixture
    @override
    def writer(self, writer: ContainerWriter) -> ContainerWriter:
        return writer

    @pytest.fixture
    @override
    def make_source(self, azurite: Azurite, container: str) -> OpenSource:
        def make(options: SourceOptions) -> AzureBlobSource:
            return AzureBlobSource(
                url=f"{azurite.blob_endpoint}/{container}",
                connection_string_env="AZURITE_CONNECTION",
                prefix=options.prefix,
                include=options.include,
                exclude=options.exclude,
                max_bytes=options.max_bytes,
            )

        return make


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
async def source(azurite: Azurite, container: str) -> AsyncIterator[AzureBlobSource]:
    source = AzureBlobSource(url=f"{azurite.blob_endpoint}/{container}", connection_string_env="AZURITE_CONNECTION")
    yield source
    await source.close()


# -- what is a blob


async def test_snapshots_are_not_listed(source: AzureBlobSource, writer: ContainerWriter) -> None:
    await writer.put("a.md", b"one")
    await writer.client.get_blob_client("a.md").create_snapshot()
    await writer.put("a.md", b"three")
    assert {path: state.size for path, state in (await listed(source)).items()} == {"a.md": 5}


async def test_a_folder_of_a_hierarchical_namespace_is_no_blob(source: AzureBlobSource, writer: ContainerWriter, spool: Path) -> None:
    await writer.put("folder", b"")
    await writer.annotate("folder", {"Hdi_isfolder": "true"})
    await writer.put("folder/a.md", b"x")
    assert list(await listed(source)) == ["folder/a.md"]
    assert await source.state("folder") is None
    assert await source.fetch("folder", spool) is None


async def test_an_archived_blob_says_so_and_is_not_fetched(source: AzureBlobSource, writer: ContainerWriter, spool: Path) -> None:
    await writer.put("a.md", b"x")
    await writer.client.get_blob_client("a.md").set_standard_blob_tier(StandardBlobTier.ARCHIVE)
    state = await source.state("a.md")
    assert state is not None
    assert state.archived
    assert (await listed(source))["a.md"].archived
    with pytest.raises(PoisonError, match="archive") as caught:
        await source.fetch("a.md", spool)
    assert caught.value.kind == "unsupported"


async def test_type_and_declared_hash_are_read(source: AzureBlobSource, writer: ContainerWriter) -> None:
    settings = ContentSettings(content_type="text/markdown", content_md5=bytearray(hashlib.md5(b"x").digest()))
    await writer.client.upload_blob("a.md", b"x", content_settings=settings)
    state = await source.state("a.md")
    assert state is not None
    assert state.content_type == "text/markdown"
    assert state.content_md5 == hashlib.md5(b"x").hexdigest()
    assert state == (await listed(source))["a.md"]


async def test_a_blob_with_a_content_encoding_is_taken_as_stored(source: AzureBlobSource, writer: ContainerWriter, spool: Path) -> None:
    packed = gzip.compress(b"hello " * 1000)
    await writer.client.upload_blob("a.txt", packed, content_settings=ContentSettings(content_encoding="gzip"))
    fetched = await source.fetch("a.txt", spool)
    assert fetched is not None
    assert fetched.content.read_bytes() == packed


async def test_page_and_append_blobs_are_read(source: AzureBlobSource, writer: ContainerWriter, spool: Path) -> None:
    await writer.client.upload_blob("page", b"p" * 1024, blob_type=BlobType.PAGEBLOB)
    await writer.client.upload_blob("append", b"a" * 700, blob_type=BlobType.APPENDBLOB)
    for path, content in (("page", b"p" * 1024), ("append", b"a" * 700)):
        fetched = await source.fetch(path, spool)
        assert fetched is not None
        assert fetched.content.read_bytes() == content


async def test_a_blob_of_many_ranges_is_put_together_in_order(source: AzureBlobSource, writer: ContainerWriter, spool: Path) -> None:
    content = os.urandom(RANGE_BYTES) * 2 + os.urandom(3 * RANGE_BYTES + 1)
    await writer.put("large.bin", content)
    fetched = await source.fetch("large.bin", spool)
    assert fetched is not None
    assert fetched.sha256 == hashlib.sha256(content).hexdigest()
    assert fetched.content.read_bytes() == content


@pytest.mark.parametrize("path", ["a/./b.md", "a/../a/b.md", "./a/b.md", "a\\b.md", "a/b.md/.", "..", "", "a\0b", "\udcff", "n" * 1025])
async def test_a_path_that_changes_on_the_way_never_leads_to_another_blob(
    source: AzureBlobSource, writer: ContainerWriter, spool: Path, path: str
) -> None:
    await writer.put("a/b.md", b"x")
    assert await source.state(path) is None
    assert await source.fetch(path, spool) is None


async def test_tags_are_not_asked_for_where_they_are_turned_off(azurite: Azurite, container: str, writer: ContainerWriter) -> None:
    await writer.put("a.md", b"x", {"k": "v"})
    source = AzureBlobSource(url=container, connection_string_env="AZURITE_CONNECTION", tags=False)
    state = await source.state("a.md")
    assert state is not None
    assert state.access.tags == (await listed(source))["a.md"].access.tags == {}
    await source.close()


# -- credentials


async def test_every_kind_of_secret_opens_the_container(
    azurite: Azurite, container: str, writer: ContainerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.put("a.md", b"x", {"k": "v"})
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    rights = ContainerSasPermissions(read=True, list=True, tag=True)
    sas = generate_container_sas(azurite.account_name, container, azurite.account_key, permission=rights, expiry=in_an_hour)
    monkeypatch.setenv("A_KEY", azurite.account_key)
    monkeypatch.setenv("A_SAS", f"?{sas}")
    monkeypatch.setenv("A_SAS_STRING", f"BlobEndpoint={azurite.blob_endpoint};SharedAccessSignature={sas}")
    url = f"{azurite.blob_endpoint}/{container}"
    for source in (
        AzureBlobSource(url=url, account_key_env="A_KEY"),
        AzureBlobSource(url=url, sas_env="A_SAS"),
        AzureBlobSource(url=f"{url}?{sas}"),
        AzureBlobSource(url=container, connection_string_env="A_SAS_STRING"),
        AzureBlobSource(url=container, connection_string_env="AZURITE_CONNECTION"),
    ):
        assert (source.account, source.container) == (azurite.account_name, container)
        state = (await listed(source))["a.md"]
        assert state.access.tags == {"k": "v"}
        await source.close()


async def test_a_wrong_key_and_an_expired_sas_are_errors_that_name_the_credential(
    azurite: Azurite, container: str, writer: ContainerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.put("a.md", b"x")
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    rights = ContainerSasPermissions(read=True, list=True, tag=True)
    monkeypatch.setenv("A_KEY", "d3Jvbmc=")
    monkeypatch.setenv(
        "A_SAS", generate_container_sas(azurite.account_name, container, azurite.account_key, permission=rights, expiry=an_hour_ago)
    )
    url = f"{azurite.blob_endpoint}/{container}"
    for source in (AzureBlobSource(url=url, account_key_env="A_KEY"), AzureBlobSource(url=url, sas_env="A_SAS")):
        for attempt in (listed(source), source.state("a.md")):
            with pytest.raises(ConfigError, match=r"credential|key or SAS"):
                await attempt
        await source.close()


async def test_a_missing_container_is_an_error_and_never_empty(azurite: Azurite, spool: Path) -> None:
    source = AzureBlobSource(url=f"{azurite.blob_endpoint}/no-such-container", connection_string_env="AZURITE_CONNECTION")
    for attempt in (listed(source), source.state("a.md"), source.fetch("a.md", spool)):
        with pytest.raises(ConfigError, match="container does not exist"):
            await attempt
    await source.close()


async def test_a_host_that_does_not_answer_is_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "a2V5")
    source = AzureBlobSource(url="http://127.0.0.1:1/devstoreaccount1/docs", account_key_env="A_KEY")
    source.patience = Patience(attempts=2, first_pause=0.01)
    with pytest.raises(TransientError, match="cannot be reached"):
        await listed(source)
    await source.close()


async def test_the_options_come_from_a_configuration(azurite: Azurite, container: str, tmp_path: Path) -> None:
    options = {"url": f"{azurite.blob_endpoint}/{container}", "connection_string_env": "AZURITE_CONNECTION", "include": ["**/*.md"]}
    source = build("sources", "azure-blob", options, base=tmp_path)
    assert await listed(source) == {}
    await source.close()
    with pytest.raises(ConfigError, match="did you mean"):
        build("sources", "azure-blob", {**options, "conection_string_env": "X"}, base=tmp_path)
