"""Random changes, passes and crashes against a dictionary: the index converges, shows nobody what is not theirs, and pays once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from typing_extensions import override

from ragstore.contracts import Store
from ragstore.testing.faults import CrashingStore, SimulatedCrash
from tests.support import postgres
from tests.support.workspace import Workspace, found

PATHS = st.sampled_from(["a.txt", "b.md", "deep/c.txt", 'it\'s "odd" %.txt'])
PARTS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, max_size=4)
ALLOW = st.sampled_from(["staff", "board", "staff board", "", "not;an;id"])
GRANTED = {"Ada": {"staff", "board"}, "Bob": {"staff"}, "Eve": set[str]()}
BROKEN = b"\x89PNG\r\n\x1a\n\0\0\0"


def content(words: list[str], number: int) -> str:
    """Paragraphs that are chunks; the same words at the same place give the same chunk in every document."""
    return "\n\n".join(f"{word} stands in paragraph {i}. " + f"{word}{i} " * 24 for i, word in enumerate(words)) + (
        f"\n\nend {number}" * (number % 2)
    )


class Machine(RuleBasedStateMachine):
    """The model is `docs`: path -> (text or None where it cannot be read, allowed ids)."""

    store: ClassVar[str]

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.work = Workspace(Path(self.folder.name), store=self.store, **self.sections())
        self.docs: dict[str, tuple[str | None, str]] = {}
        self.history: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.in_step = False
        self.writes = 0
        self.crash_at: tuple[int, str] | None = None
        self.work.connectors.wrapper = self._crashing

    def sections(self) -> dict[str, Any]:
        return {}

    @override
    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _crashing(self, store: Store) -> Store:
        def maybe(moment: str) -> None:
            if self.crash_at == (self.writes, moment):
                raise SimulatedCrash

        def after(_writes: object) -> None:
            maybe("after")
            self.writes += 1

        return CrashingStore(store, before=lambda _writes: maybe("before"), after=after)

    # What happens to the blobs.

    def _put(self, path: str, text: str | None, allow: str) -> None:
        self.docs[path] = (text, allow)
        if text is not None:
            self.history[path].add((text, allow))
        file = self.work.docs / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(BROKEN if text is None else text.encode())
        self.work.allow(path, allow)
        self.in_step = False

    @rule(data=st.data(), several=st.integers(1, 4))
    def change(self, data: st.DataObject, several: int) -> None:
        """Between two passes more than one thing happens, mostly to blobs that are there."""
        for _ in range(several):
            kinds = ["write", "edit", "rename", "retag", "delete", "garbage"] if self.docs else ["write"]
            kind = data.draw(st.sampled_from(kinds))
            getattr(self, f"_{kind}")(data)

    def _write(self, data: st.DataObject) -> None:
        self._put(data.draw(PATHS), content(data.draw(PARTS), data.draw(st.integers(0, 3))), data.draw(ALLOW))

    def _edit(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.docs)))
        text, allow = self.docs[path]
        word = data.draw(st.sampled_from(["alpha", "omega"]))
        self._put(path, f"{word} at the top. " + f"{word} " * 24 + "\n\n" + (text or "")[:4000], allow)

    def _rename(self, data: st.DataObject) -> None:
        path, to = data.draw(st.sampled_from(sorted(self.docs))), data.draw(PATHS)
        if to != path:
            (self.work.docs / to).parent.mkdir(exist_ok=True)
            (self.work.docs / path).replace(self.work.docs / to)
            text, allow = self.docs.pop(path)
            self._put(to, text, allow)

    def _retag(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.docs)))
        text, allow = self.docs[path][0], data.draw(ALLOW)
        self.docs[path] = (text, allow)
        if text is not None:
            self.history[path].add((text, allow))
        self.work.allow(path, allow)
        self.in_step = False

    def _delete(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.docs)))
        del self.docs[path]
        (self.work.docs / path).unlink()
        self.in_step = False

    def _garbage(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.docs)))
        self._put(path, None, self.docs[path][1])

    # What happens to the index; after each pass everybody is asked.

    @rule()
    def sync(self) -> None:
        asyncio.run(self._sync())
        self.in_step = True
        asyncio.run(self._check())

    @rule(at=st.integers(0, 3), moment=st.sampled_from(["before", "after"]))
    def crash(self, at: int, moment: str) -> None:
        self.writes, self.crash_at = 0, (at, moment)
        try:
            asyncio.run(self._sync())
        except SimulatedCrash:
            self.in_step = False
        finally:
            self.crash_at = None
        asyncio.run(self._check())

    @rule()
    def sync_while_the_embedder_is_down(self) -> None:
        async def run() -> None:
            async with self.work.open() as index:
                index._assembly.configured()
                self.work.embedder.fail()
                await index.sync()

        asyncio.run(run())
        self.in_step = False
        asyncio.run(self._check())

    async def _sync(self) -> None:
        async with self.work.open() as index:
            await index.sync()

    # What must always hold.

    async def _check(self) -> None:
        async with self.work.open() as index:
            if index._assembly.holding() is None:
                return
            for who, groups in GRANTED.items():
                hits = await found(index, "alpha beta gamma delta omega paragraph end", who, limit=200)
                for hit in hits:
                    path = hit.blob.removeprefix("docs/")
                    versions = [allow for text, allow in self.history[path] if hit.text in text]
                    assert any(groups & set(allow.split()) for allow in versions), f"{who} was shown {hit.blob}"
                if self.in_step:
                    self._check_in_step(who, {hit.blob.removeprefix("docs/"): hit.text for hit in hits})
            if self.in_step:
                assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}
                assert {row["blob"] for row in index.failures()} == {
                    f"docs/{path}" for path, (text, _) in self.docs.items() if text is None
                }
        embedded = self.work.embedded
        assert len(embedded) == len(set(embedded)), "a text was embedded twice"

    def _check_in_step(self, who: str, shown: dict[str, str]) -> None:
        """Equal texts are shown once, so a blob may be hidden behind its copy; a blob of its own text never is."""
        readable = {path: text for path, (text, allow) in self.docs.items() if text is not None and GRANTED[who] & set(allow.split())}
        assert shown.keys() <= readable.keys()
        assert shown or not readable
        assert all(text in readable[path] for path, text in shown.items())


class MemoryMachine(Machine):
    store = "memory"


class LanceDBMachine(Machine):
    store = "lancedb"


class PostgresMachine(MemoryMachine):
    """With the ledger in a schema of its own."""

    server: ClassVar[str]

    @override
    def sections(self) -> dict[str, Any]:
        self.schema = postgres.schema(self.server)
        return {"ledger": {"url": self.schema.__enter__()}}

    @override
    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "schema"):
            self.schema.__exit__(None, None, None)


_MANY = os.environ.get("HYPOTHESIS_PROFILE") == "long"

TestOnMemory = pytest.mark.timeout(3600)(MemoryMachine.TestCase)
TestOnMemory.settings = settings(max_examples=60 if _MANY else 30, stateful_step_count=30 if _MANY else 14)
TestOnLanceDB = pytest.mark.timeout(3600)(LanceDBMachine.TestCase)
TestOnLanceDB.settings = settings(max_examples=20 if _MANY else 8, stateful_step_count=20 if _MANY else 10)


@pytest.mark.timeout(3600)
def test_on_a_ledger_in_postgresql(postgres_server: str) -> None:
    machine = type("Postgres", (PostgresMachine,), {"server": postgres_server})
    run_state_machine_as_test(machine, settings=settings(max_examples=20 if _MANY else 5, stateful_step_count=10))
