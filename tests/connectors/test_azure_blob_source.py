from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import pytest
from azure.storage.blob.aio import ContainerClient
from typing_extensions import override

from ragstore.testing.sources import OpenSource, SourceOptions, SourceSuite
from ragstore_azure import AzureBlobSource

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
