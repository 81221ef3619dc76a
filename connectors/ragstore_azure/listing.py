"""A container in; what a listing says of its blobs, page by page, out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import ContentDecodePolicy
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import ContainerClient

from ragstore.errors import ConfigError
from ragstore_azure.errors import TAGS_ROLE, code_of
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineResponse
    from azure.core.pipeline.transport import AsyncHttpResponse, HttpRequest

_PAGE: Final = 5000
"""The most that the service gives at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A blob as a listing has it."""

    properties: BlobProperties
    acl: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """How to list one container."""

    client: ContainerClient
    name: str
    """For messages: `account/container`."""
    patience: Patience
    tags: bool
    """Whether to ask for index tags, which needs a right of its own."""

    async def blobs(self, *, prefix: str, acls: bool, page_size: int = _PAGE) -> AsyncIterator[Listed]:
        """Current base blobs whose names start with the prefix, folders of a hierarchical namespace included; with ACLs where asked for.

        Ends only when the service says that there are no more. A page that fails is asked for again; then it raises as `Patience.call`.
        """
        found = _AclsOfPage()
        include = ["metadata", *(["tags"] if self.tags else []), *(["permissions"] if acls else [])]
        pages = self.client.list_blobs(
            name_starts_with=prefix or None, include=include, results_per_page=page_size, raw_response_hook=found if acls else None
        ).by_page()

        async def next_page() -> AsyncIterator[BlobProperties] | None:
            return await anext(pages, None)

        while True:
            try:
                page = await self.patience.call(next_page, container=self.name, doing="listing it")
            except ConfigError as error:
                raise await self._why_refused(error) from error
            if page is None:
                return
            async for properties in page:
                if not properties.deleted and properties.snapshot is None:
                    yield Listed(properties=properties, acl=found.acls.get(properties.name))

    async def _why_refused(self, error: ConfigError) -> ConfigError:
        """The service does not say whether the right to list is missing or that to read tags: ask again without tags."""
        cause = error.__cause__
        if not self.tags or not isinstance(cause, AzureError) or code_of(cause) != "AuthorizationPermissionMismatch":
            return error
        try:
            async for _first in self.client.list_blobs(results_per_page=1):
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


class _AclsOfPage:
    """Takes the ACLs of the latest page from the raw response: the SDK's own values leave them out.

    Where they stand: https://learn.microsoft.com/rest/api/storageservices/list-blobs, `include=permissions`.
    """

    def __init__(self) -> None:
        self.acls: dict[str, str] = {}

    def __call__(self, response: PipelineResponse[HttpRequest, AsyncHttpResponse]) -> None:
        """Called by the SDK with every response, refusals included."""
        if response.http_response.status_code != HTTPStatus.OK:
            return
        root = ContentDecodePolicy.deserialize_from_http_generics(response.http_response)
        self.acls = {}
        if isinstance(root, Element):
            for blob in root.iter("Blob"):
                name, acl = blob.find("Name"), blob.findtext("Properties/Acl")
                if name is not None and name.text and acl:
                    self.acls[unquote(name.text) if name.get("Encoded") == "true" else name.text] = acl
