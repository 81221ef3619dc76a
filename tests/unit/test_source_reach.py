"""A source that does not answer: a batch of hundreds of blobs does not wait for it hundreds of times."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.errors import TransientError
from ragstore.ingest.reach import _IN_A_ROW, _SECONDS, Reach
from ragstore.models import BlobState
from ragstore_folder import FolderSource
from tests.support.workspace import Workspace, paragraphs, texts


class Moody(FolderSource):
    """A folder that answers only while it is up."""

    up = True
    asked = 0

    @override
    async def state(self, path: str) -> BlobState | None:
        self.asked += 1
        if not self.up:
            raise TransientError("nobody is there")
        return await super().state(path)


@pytest.fixture
def source(tmp_path: Path) -> Moody:
    (tmp_path / "a.txt").write_text("a")
    return Moody(path=str(tmp_path), base=tmp_path)


async def test_a_source_that_is_down_is_asked_a_few_times_and_then_now_and_then(source: Moody) -> None:
    now = 0.0
    reach = Reach(lambda: now)
    source.up = False
    for _blob in range(100):
        with pytest.raises(TransientError, match="nobody"):
            await reach.state(source, "a.txt")
    assert source.asked == _IN_A_ROW
    now += _SECONDS + 1
    with pytest.raises(TransientError):
        await reach.state(source, "a.txt")
    assert source.asked == _IN_A_ROW + 1
    source.up = True
    with pytest.raises(TransientError):
        await reach.state(source, "a.txt")
    now += _SECONDS + 1
    for _blob in range(3):
        assert await reach.state(source, "a.txt") is not None


async def test_failures_between_answers_are_no_outage(source: Moody) -> None:
    reach = Reach()
    for blob in range(100):
        source.up = blob % 4 == 0
        if source.up:
            assert await reach.state(source, "a.txt") is not None
        else:
            with pytest.raises(TransientError):
                await reach.state(source, "a.txt")
    assert source.asked == 100


async def test_one_source_that_is_down_keeps_nobody_from_another(source: Moody, tmp_path: Path) -> None:
    reach = Reach()
    other = Moody(path=str(tmp_path), base=tmp_path, container="other")
    source.up = False
    for _blob in range(20):
        with pytest.raises(TransientError):
            await reach.state(source, "a.txt")
    assert await reach.state(other, "a.txt") is not None


async def test_a_pass_that_meets_an_outage_keeps_what_it_has_and_mends_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workspace(tmp_path)
    for number in range(60):
        work.write(f"{number}.txt", paragraphs(f"topic{number}", 1))
    async with work.open() as index:
        asked: list[str] = []

        async def fetch(path: str, spool: Path) -> None:
            asked.append(path)
            raise TransientError("nobody is there")

        with monkeypatch.context() as patch:
            patch.setattr(index._assembly.sources()[0], "fetch", fetch)
            assert (await index.sync()).failed == 60
            assert len(asked) < 30
        assert (await index.sync()).added == 60
        assert index.failures() == []
        assert await texts(index, "topic7", "Bob")
