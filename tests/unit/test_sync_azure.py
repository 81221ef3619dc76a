"""Mode `azure` from the files of assignments to the hits: a folder, whose account is `local`, indexed and asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.errors import AccessError, ConfigError
from tests.support.azure_files import BLOBS, GROUP, account, assigned, container, denied
from tests.support.workspace import Workspace, found, paragraphs

PATH = f"@Resource[{BLOBS}:path]"
PROJECT = f"@Resource[{BLOBS}/tags:Project<$key_case_sensitive$>]"


class AzureWorkspace(Workspace):
    """Three documents: `hr/a.txt` and `it/b.txt` with a tag `Project`, `it/c.txt` without one."""

    def fill(self) -> None:
        for path in ("hr/a.txt", "it/b.txt", "it/c.txt"):
            self.write(path, paragraphs(path[3], 3), allow=None)
        self.tags = {"hr/a.txt": {"Project": "Cascade"}, "it/b.txt": {"Project": "Baker"}}
        self.save_tags()

    def assign(self, *assignments: object, deny: object = None) -> None:
        (self.base / "assignments.json").write_text(json.dumps(assignments), encoding="utf-8")
        (self.base / "deny.json").write_text(json.dumps([deny] if deny else []), encoding="utf-8")


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> AzureWorkspace:
    access = {"mode": "azure", "assignments": "assignments.json", "deny_assignments": "deny.json", "principals": "principals.json"}
    work = AzureWorkspace(tmp_path, store=request.param, access=access)
    work.fill()
    return work


async def blobs(work: AzureWorkspace, who: str) -> set[str]:
    async with work.open() as index:
        return {hit.blob for hit in await found(index, "paragraph", who, limit=20)}


async def test_each_principal_finds_what_its_assignments_let_it_read(work: AzureWorkspace) -> None:
    work.assign(
        assigned("board", scope=container("docs")),
        assigned("bob", condition=f"{PATH} StringLike 'it/*'"),
        assigned("staff", condition=f"{PROJECT} StringEqualsIgnoreCase 'CASCADE'"),
    )
    async with work.open() as index:
        assert (await index.sync()).quarantined == 0
    assert await blobs(work, "Ada") == {"docs/hr/a.txt", "docs/it/b.txt", "docs/it/c.txt"}
    assert await blobs(work, "Bob") == {"docs/hr/a.txt", "docs/it/b.txt", "docs/it/c.txt"}
    assert await blobs(work, "Eve") == set()
    work.assign(assigned("bob", condition=f"{PROJECT} StringNotEquals 'Cascade'"))
    assert await blobs(work, "Bob") == {"docs/it/b.txt"}
    assert await blobs(work, "Ada") == set()


async def test_assignments_that_change_count_for_the_next_query_without_a_pass(work: AzureWorkspace) -> None:
    work.assign(assigned("staff"))
    async with work.open() as index:
        await index.sync()
        bob = index.principal("Bob")
        assert len(await index.search("paragraph", principal=bob, limit=20)) == 9
        work.assign(assigned("staff"), deny=denied("bob", condition=f"{PATH} StringStartsWith 'hr/'"))
        assert {hit.blob for hit in await index.search("paragraph", principal=bob, limit=20)} == {"docs/it/b.txt", "docs/it/c.txt"}
        work.assign()
        assert await index.search("paragraph", principal=bob) == []
        (work.base / "deny.json").unlink()
        with pytest.raises(AccessError):
            await index.search("paragraph", principal=bob)


async def test_a_tag_that_changes_takes_access_away_with_the_pass_that_sees_it(work: AzureWorkspace) -> None:
    work.assign(assigned("bob", condition=f"{PROJECT} StringEquals 'Cascade'"))
    async with work.open() as index:
        await index.sync()
        (first, *_) = await found(index, "paragraph", "Bob")
        work.tags["hr/a.txt"] = {"Project": "Baker"}
        work.save_tags()
        report = await index.sync()
        assert (report.retagged, report.chunks_embedded) == (1, 0)
        assert await found(index, "paragraph", "Bob") == []
        assert await index.chunk(first.chunk, principal=index.principal("Bob")) is None


async def test_a_pass_reports_what_grants_nothing(work: AzureWorkspace) -> None:
    work.assign(assigned("bob", scope=GROUP), assigned("bob", condition="x"))
    async with work.open() as index:
        report = await index.sync()
        told = " ".join(str(warning) for warning in report.warnings)
    assert "[access] accounts" in told
    assert "does not parse" in told
    work.sections["access"]["accounts"] = [account()]
    assert len(await blobs(work, "Bob")) == 3


def test_deny_assignments_must_be_said(work: AzureWorkspace) -> None:
    work.assign()
    del work.sections["access"]["deny_assignments"]
    with pytest.raises(ConfigError, match='or deny_assignments = "none"'):
        work.open()
