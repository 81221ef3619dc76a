"""Index tags that change in Azurite take access away, and give it: what the very next question is told, also in a conversation.

Azure changes neither ETag nor Last-Modified when tags are set (https://learn.microsoft.com/rest/api/storageservices/set-blob-tags), so that
nothing that looks at content can notice.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient

from ragstore.index import AsyncIndex
from ragstore.models import Hit, Prompt
from tests.connectors.test_worker_azure import Place, _RealFeeds
from tests.support.account import Account
from tests.support.azure_files import BLOBS, assigned
from tests.support.azure_files import container as scope_of
from tests.support.azurite import Azurite
from tests.support.event_queue import until
from tests.support.feed_writer import START, ContainerSink, FeedWriter
from tests.support.workspace import Workspace, paragraphs

pytestmark = pytest.mark.azurite

GUARD = f"!(ActionMatches{{'{BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}})"
CONDITION = f"({GUARD} OR @Resource[{BLOBS}/tags:allow<$key_case_sensitive$>] StringEquals 'staff')"
QUERY = "paragraph subject1 detail1"


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Somebody asks turn by turn; a chat keeps the ids of the chunks that it was shown, and asks for each again in every turn."""

    index: AsyncIndex
    who: str = "Bob"
    shown: dict[str, str] = field(default_factory=dict)
    """Blob of each chunk that was ever shown, by its id."""

    async def turn(self) -> set[str]:
        """The paths of the blobs that search, prompt and the ids of earlier turns show now; they agree."""
        principal = self.index.principal(self.who)
        hits = await self.index.search(QUERY, principal=principal, limit=50)
        prompt = await self.index.prompt(QUERY, principal=principal)
        again = [hit for chunk in self.shown if (hit := await self.index.chunk(chunk, principal=principal)) is not None]
        seen = self._of(hits)
        assert self._of(prompt) == seen
        assert self._of(again) == seen & {self._path(blob) for blob in self.shown.values()}
        for path in ("a.txt", "b.txt"):
            assert (f"/{path}" in str(prompt)) is (path in seen), "neither the messages nor the citations name what is not shown"
        self.shown |= {hit.chunk: hit.blob for hit in hits}
        return seen

    def _of(self, answer: list[Hit] | Prompt) -> set[str]:
        blobs = (citation.blob for citation in answer.citations) if isinstance(answer, Prompt) else (hit.blob for hit in answer)
        return {self._path(blob) for blob in blobs}

    @staticmethod
    def _path(blob: str) -> str:
        return blob.partition("/")[2]


@pytest.fixture
def account(azurite_queue: Azurite, container: str) -> Iterator[Account]:
    """Two blobs that staff may read."""
    with closing(Account.of(azurite_queue, container)) as account:
        account.put("a.txt", paragraphs("alpha", 3))
        account.put("b.txt", paragraphs("beta", 3))
        yield account


@pytest.fixture
def work(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Staff read what is tagged `allow = staff`, by a condition; nothing else grants anything."""
    azurite, container = account.azurite, account.client.container_name
    monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
    assignments = [assigned("staff", scope=scope_of(container, azurite.account_name), condition=CONDITION)]
    (tmp_path / "assignments.json").write_text(json.dumps(assignments), encoding="utf-8")
    source = {"type": "azure-blob", "url": f"{azurite.blob_endpoint}/{container}", "connection_string_env": "TEST_CONNECTION"}
    access = {"mode": "azure", "assignments": "assignments.json", "deny_assignments": "none", "principals": "principals.json"}
    return Workspace(tmp_path, store="lancedb", source=source, access=access)


@pytest.fixture
def place(work: Workspace, account: Account, queue: str) -> Iterator[Place]:
    """The same, followed by its change feed and its queue."""
    connection = account.azurite.connection_string
    feed = f"feed-{uuid.uuid4().hex[:20]}"
    work.connectors = _RealFeeds()
    work.sections["source"] |= {
        "feed": ["change-feed", "event-queue"],
        "change-feed": {"container": feed, "poll_seconds": 0.1},
        "event-queue": {"queue": queue, "poll_seconds": 0.1},
    }
    with (
        closing(ContainerClient.from_connection_string(connection, feed)) as feed_client,
        closing(QueueClient.from_connection_string(connection, queue)) as queue_client,
    ):
        writer = FeedWriter.of(ContainerSink(feed_client))
        writer.segment(START, shards=2)
        writer.consumable(START)
        yield Place(work, account, writer, queue_client)


def state_of(account: Account, path: str) -> tuple[object, ...]:
    """All that tells a client that a blob has changed."""
    found = account.client.get_blob_client(path).get_blob_properties()
    return found.etag, found.last_modified, found.size, bytes(found.content_settings.content_md5 or b"")


def test_tags_are_set_without_any_sign_that_a_client_of_content_could_see(account: Account) -> None:
    before = state_of(account, "a.txt")
    time.sleep(1.1)  # Last-Modified counts seconds
    account.retag("a.txt", "board")
    assert state_of(account, "a.txt") == before
    account.client.get_blob_client("a.txt").set_blob_metadata({"x": "y"})
    assert [one != other for one, other in zip(state_of(account, "a.txt"), before, strict=True)] == [True, True, False, False]


@pytest.mark.parametrize("tag", ["board", "Staff", ""])
@pytest.mark.parametrize("lane", ["refresh_access", "sync"])
async def test_a_tag_that_is_changed_takes_access_away_with_the_pass_and_gives_it_again(
    work: Workspace, account: Account, lane: str, tag: str
) -> None:
    async with work.open() as index:
        await index.sync()
        talk = Conversation(index=index)
        assert await talk.turn() == {"a.txt", "b.txt"}
        assert await Conversation(index=index, who="Eve").turn() == set()
        assert await talk.turn() == {"a.txt", "b.txt"}
        before, embedded = state_of(account, "a.txt"), len(work.embedded)
        account.retag("a.txt", tag)
        assert state_of(account, "a.txt") == before
        report = await (index.refresh_access() if lane == "refresh_access" else index.sync())
        assert (report.retagged, report.changed, report.chunks_embedded) == (1, 0, 0)
        assert await talk.turn() == {"b.txt"}
        assert await talk.turn() == {"b.txt"}
        account.retag("a.txt", "staff")
        assert state_of(account, "a.txt") == before
        report = await (index.refresh_access() if lane == "refresh_access" else index.sync())
        assert report.retagged == 1
        assert await talk.turn() == {"a.txt", "b.txt"}
        assert len(work.embedded) == embedded
        assert not await index.verify()


async def test_a_blob_that_gets_its_tag_later_is_found_from_then_on(work: Workspace, account: Account) -> None:
    account.put("c.txt", paragraphs("gamma", 3), allow="")
    async with work.open() as index:
        await index.sync()
        talk = Conversation(index=index)
        assert await talk.turn() == {"a.txt", "b.txt"}
        before = state_of(account, "c.txt")
        account.retag("c.txt", "staff")
        assert state_of(account, "c.txt") == before
        assert (await index.refresh_access()).retagged == 1
        assert await talk.turn() == {"a.txt", "b.txt", "c.txt"}


async def test_a_tag_whose_change_a_worker_is_told_takes_access_away_in_the_middle_of_a_conversation(place: Place) -> None:
    async with place.following() as index:
        talk = Conversation(index=index)
        assert await talk.turn() == {"a.txt", "b.txt"}
        before, fetched = state_of(place.account, "a.txt"), list(place.source.fetched)
        told = place.account.retag("a.txt", "board")
        assert state_of(place.account, "a.txt") == before
        place.record(told)
        await place.settled(index)
        assert await talk.turn() == {"b.txt"}
        place.record(place.account.retag("b.txt", ""))
        await place.settled(index)
        assert await talk.turn() == set()
        place.record(place.account.retag("a.txt", "staff"))
        await place.settled(index)
        assert await talk.turn() == {"a.txt"}
        assert place.source.fetched == fetched
        assert not await index.verify()


async def test_who_asks_all_the_while_sees_a_revoked_blob_never_again(place: Place) -> None:
    async with place.following() as index:
        answers: list[set[str]] = []
        stopped = asyncio.Event()

        async def asking() -> None:
            principal = index.principal("Bob")
            while not stopped.is_set():
                hits = await index.search(QUERY, principal=principal, limit=50)
                answers.append({hit.blob.partition("/")[2] for hit in hits})

        task = asyncio.create_task(asking())
        await until(lambda: bool(answers))
        place.record(place.account.retag("a.txt", "board"))
        await place.settled(index)
        applied = len(answers) + 1  # one question may be on its way
        await until(lambda: len(answers) >= applied + 5)
        stopped.set()
        await task
        assert answers[0] == {"a.txt", "b.txt"}
        gone = answers.index({"b.txt"})
        assert gone <= applied
        assert answers[gone:] == [{"b.txt"}] * (len(answers) - gone)
