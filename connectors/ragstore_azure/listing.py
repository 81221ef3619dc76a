"""A container in; the states of its blobs as a listing has them, page by page, out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit
from xml.etree.ElementTree import Element

from azure.core.exceptions import AzureError, DecodeError
from azure.core.pipeline.policies import ContentDecodePolicy
from azure.storage.blob.aio import ContainerClient

from ragstore.errors import ConfigError
from ragstore.models import BlobState
from ragstore_azure.errors import TAGS_ROLE, code_of
from ragstore_azure.properties import is_folder, listed_path, state_of_listed
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineResponse
    from azure.core.pipeline.transport import AsyncHttpResponse, HttpRequest

_PAGE: Final = 5000
"""The most that the service gives at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """How to list one container."""

    client: ContainerClient
    account: str
    container: str
    patience: Patience
    tags: bool
    """Whether to ask for index tags, which needs a right of its own."""

    @property
    def name(self) -> str:
        """For messages: `account/container`."""
        return f"{self.account}/{self.container}"

    async def blobs(self, *, prefix: str, admits: Callable[[str], bool], acls: bool, page_size: int = _PAGE) -> AsyncIterator[BlobState]:
        """Current base blobs whose names start with the prefix and are admitted, without folders; with ACLs where asked for.

        Ends only when the service says that there are no more. A page that fails is asked for again; then it raises as `Patience.call`.
        """
        include = ("metadata", *(("tags",) if self.tags else ()), *(("permissions",) if acls else ()))
        latest = LatestPage(include)
        # The SDK's call for names alone, told to include the rest: making its own values of a page takes eight times as long as this does.
        pages = self.client.list_blob_names(
            name_starts_with=prefix or None, results_per_page=page_size, include=[*include], raw_response_hook=latest
        ).by_page()

        async def next_page() -> bool:
            return await anext(pages, None) is not None

        while True:
            try:
                more = await self.patience.call(next_page, container=self.name, doing="listing it")
            except ConfigError as error:
                raise await self._why_refused(error) from error
            if not more:
                return
            for blob in latest.blobs():
                path = listed_path(blob)
                if admits(path):
                    state = state_of_listed(blob, path, account=self.account, container=self.container)
                    if not is_folder(state):
                        yield state

    async def _why_refused(self, error: ConfigError) -> ConfigError:
        """The service does not say whether the right to list is missing or that to read tags: ask again without tags."""
        cause = error.__cause__
        if not self.tags or not isinstance(cause, AzureError) or code_of(cause) != "AuthorizationPermissionMismatch":
            return error
        try:
            async for _first in self.client.list_blob_names(results_per_page=1):
                break
        except AzureError:
            return error
        return tags_refused(self.name)


def tags_refused(name: str) -> ConfigError:
    """The identity may read blobs, but not their index tags."""
    return ConfigError(
        f"{name}: reading index tags was refused: the identity lacks {TAGS_ROLE}. "
        "Where no access decision rests on tags, or the account has none, set tags = false"
    )


class LatestPage:
    """Keeps the blobs of the latest page as the service wrote them; given to the SDK as `raw_response_hook`.

    The format: https://learn.microsoft.com/rest/api/storageservices/list-blobs.
    """

    def __init__(self, include: tuple[str, ...]) -> None:
        self._include = frozenset(include)
        self._root = Element("EnumerationResults")

    def __call__(self, response: PipelineResponse[HttpRequest, AsyncHttpResponse]) -> None:
        """Called by the SDK with every response, refusals included."""
        if response.http_response.status_code != HTTPStatus.OK:
            return
        asked = parse_qs(urlsplit(response.http_request.url).query).get("include", [""])[0]
        if not self._include <= frozenset(asked.split(",")):
            # Without this, an SDK that came to ignore `include` would show blobs without the attributes that access rests on.
            raise NotImplementedError(f"this version of azure-storage-blob lists with include={asked!r}, not {sorted(self._include)}")
        root = ContentDecodePolicy.deserialize_from_http_generics(response.http_response)
        if not isinstance(root, Element) or root.tag != "EnumerationResults":
            raise DecodeError("the answer is not a listing of blobs", response=response.http_response)
        self._root = root

    def blobs(self) -> Iterator[Element]:
        """The blobs of the page, without what was deleted, snapshots and old versions."""
        for blob in self._root.iterfind("Blobs/Blob"):
            is_past = blob.findtext("Deleted") == "true" or blob.findtext("Snapshot") or blob.findtext("IsCurrentVersion") == "false"
            if not is_past:
                yield blob
