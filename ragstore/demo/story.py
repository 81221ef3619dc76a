"""An empty folder and an embedder's name in; the steps of the demonstration, each with its numbers and checked claims, out.

It checks what it claims from outside: who may read a file is read from the file of tags here, not asked of the policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragstore import config
from ragstore.blocking import Index
from ragstore.demo.corpus import EDITED, PRINCIPALS, READERS, files

if TYPE_CHECKING:
    from ragstore.ingest.report import SyncReport
    from ragstore.models import Hit

QUESTIONS: Final = (
    "how often are access keys replaced?",
    "what do we pay for the warehouse in the harbour?",
    "who is Project Kestrel about to buy?",
    "how much does Mira Okafor earn?",
    "when is the workshop open?",
    "which discount does Oktava give on insulators?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim, and whether it held."""

    claim: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was done, what it cost, and what was claimed."""

    title: str
    report: Mapping[str, Any] = field(default_factory=dict)
    """As `SyncReport.as_dict`; empty where nothing was indexed."""
    answers: tuple[tuple[str, str, str], ...] = ()
    """Question, Ada's best blob, Bob's best blob; `-` for none."""
    checks: tuple[Check, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        answers = [{"question": question, "Ada": ada, "Bob": bob} for question, ada, bob in self.answers]
        checks = [{"claim": check.claim, "holds": check.holds} for check in self.checks]
        return {"step": self.title, "report": dict(self.report), "answers": answers, "checks": checks}


def tell(folder: Path, *, embedder: str) -> Iterator[Step]:
    """Write the files into the empty `folder` and yield each step when it is done. Raises what `Index` raises."""
    company = _Company(folder, embedder)
    with Index(config.load(folder / "ragstore.toml", environ={})) as index:
        story = _Story(company, index)
        for step in (
            story.index_all, story.ask, story.edit, story.rename, story.copy, story.retag, story.delete, story.do_nothing, story.verify
        ):  # fmt: skip
            yield step()


class _Company:
    """The folder: files, tags, principals and configuration."""

    def __init__(self, folder: Path, embedder: str) -> None:
        self.root = folder / "company"
        self._tags = folder / "tags.json"
        self._readers = dict(READERS)
        for path, content in files().items():
            self.write(path, content)
        self.tag()
        (folder / "principals.json").write_text(json.dumps(PRINCIPALS, indent=2), encoding="utf-8")
        (folder / "ragstore.toml").write_text(_configuration(embedder), encoding="utf-8")

    def write(self, path: str, content: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def move(self, old: str, new: str) -> None:
        """The file with its tags, as a rename in a storage account keeps them."""
        (self.root / new).parent.mkdir(parents=True, exist_ok=True)
        (self.root / old).rename(self.root / new)
        self._readers[new] = self._readers.pop(old)
        self.tag()

    def tag(self) -> None:
        tags = {path: {"allowed": ids} for path, ids in self._readers.items()}
        self._tags.write_text(json.dumps(tags, indent=2), encoding="utf-8")

    def allow(self, path: str, ids: str) -> None:
        self._readers[path] = ids
        self.tag()

    def delete(self, path: str) -> None:
        (self.root / path).unlink()
        self._readers.pop(path, None)
        self.tag()

    def readable(self, name: str) -> set[str]:
        """The blobs that this person may read now."""
        person = next(person for person in PRINCIPALS if person["name"] == name)
        ids = {person["id"], *person["groups"]}
        return {f"company/{path}" for path, readers in self._readers.items() if ids & set(readers.split())}


class _Story:
    """The steps, in order: each builds on what the ones before it left."""

    def __init__(self, company: _Company, index: Index) -> None:
        self._company = company
        self._index = index
        self._people = {name: index.principal(name) for name in ("Ada", "Bob")}

    def index_all(self) -> Step:
        report = self._index.sync()
        (broken, *others) = self._index.failures()
        reason = f"{broken['kind']}, {broken['reason'].partition(':')[0]}"
        return self._step(
            "Index ten files in eight formats",
            report,
            Check(claim="nine files are indexed", holds=report.added == len(files()) - 1),
            Check(claim=f"broken.pdf is set aside: {reason}", holds=broken["blob"] == "company/broken.pdf" and not others),
        )

    def ask(self) -> Step:
        answers = tuple((question, self._best(question, "Ada"), self._best(question, "Bob")) for question in QUESTIONS)
        finds = {question: (ada, bob) for question, ada, bob in answers}
        kestrel = finds[QUESTIONS[2]]
        prompt = self._index.prompt(QUESTIONS[2], principal=self._people["Bob"])
        told = any("Falkenried" in message["content"] for message in prompt.messages)
        return self._step(
            "Ask the same questions as Ada (all groups) and as Bob (staff)",
            None,
            Check(claim="Ada finds the mail about Kestrel", holds=kestrel[0] == "company/mail/kestrel.eml"),
            Check(claim="Bob's prompt does not hold a word of it", holds=not told),
            Check(
                claim="nobody finds the draft that names no reader",
                holds=not self._finds("draft.txt", "a speech for the summer party", "Ada"),
            ),
            answers=answers,
        )

    def edit(self) -> Step:
        before, after = EDITED
        self._company.write("handbook.md", (self._company.root / "handbook.md").read_bytes().replace(before.encode(), after.encode()))
        report = self._index.sync()
        found = " ".join(word for hit in self._hits(QUESTIONS[0], "Bob") for word in hit.text.split())
        return self._step(
            "Edit one sentence of the handbook",
            report,
            Check(claim="one chunk is embedded, the others of the file are reused", holds=_only_one_embedded(report)),
            Check(claim="the new sentence is found", holds=after in found),
            Check(claim="the old one is gone", holds=before not in found),
        )

    def rename(self) -> Step:
        self._company.move("travel.html", "policies/travel.html")
        report = self._index.sync()
        return self._step(
            "Rename travel.html",
            report,
            Check(claim="a move, and nothing is embedded", holds=(report.moved, report.chunks_embedded) == (1, 0)),
            Check(claim="it is found under its new name", holds=self._finds("policies/travel.html", "how much may a hotel cost?", "Bob")),
        )

    def copy(self) -> Step:
        self._company.write("archive/handbook.md", (self._company.root / "handbook.md").read_bytes())
        self._company.allow("archive/handbook.md", "staff")
        report = self._index.sync()
        return self._step(
            "Copy the handbook",
            report,
            Check(claim="one more file, and nothing is embedded", holds=(report.added, report.chunks_embedded) == (1, 0)),
        )

    def retag(self) -> Step:
        lease, hours = QUESTIONS[1], QUESTIONS[4]
        before = self._finds("contracts/harbour.pdf", lease, "Bob"), self._finds("opening-hours.txt", hours, "Bob")
        self._company.allow("contracts/harbour.pdf", "finance staff")
        self._company.allow("opening-hours.txt", "hr")
        report = self._index.sync()
        after = self._finds("contracts/harbour.pdf", lease, "Bob"), self._finds("opening-hours.txt", hours, "Bob")
        return self._step(
            "Change two tags: Bob gets the lease and loses the opening hours",
            report,
            Check(claim="two retags, and nothing is read or embedded", holds=(report.retagged, report.chunks_embedded) == (2, 0)),
            Check(claim="Bob finds the lease now, and not before", holds=(before[0], after[0]) == (False, True)),
            Check(claim="Bob found the opening hours before, and not now", holds=(before[1], after[1]) == (True, False)),
        )

    def delete(self) -> Step:
        found = self._finds("suppliers.csv", QUESTIONS[5], "Ada")
        self._company.delete("suppliers.csv")
        report = self._index.sync()
        gone = not self._finds("suppliers.csv", QUESTIONS[5], "Ada")
        return self._step(
            "Delete the list of suppliers",
            report,
            Check(claim="one delete, and nothing is embedded", holds=(report.deleted, report.chunks_embedded) == (1, 0)),
            Check(claim="Ada found it before, and nobody does now", holds=found and gone),
        )

    def do_nothing(self) -> Step:
        report = self._index.sync()
        changed = report.added + report.changed + report.moved + report.retagged + report.deleted + report.chunks
        return self._step("Change nothing", report, Check(claim="nothing is done", holds=changed == 0 and report.unchanged > 0))

    def verify(self) -> Step:
        counts = {kind: len(names) for kind, names in self._index.verify().as_dict().items()}
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        return self._step("Compare source, ledger and store", None, Check(claim=shown, holds=not any(counts.values())))

    def _step(self, title: str, report: SyncReport | None, *checks: Check, answers: tuple[tuple[str, str, str], ...] = ()) -> Step:
        trimmed = Check(claim="Ada and Bob see only what each may read", holds=all(map(self._is_trimmed, self._people)))
        return Step(title=title, report=report.as_dict() if report else {}, answers=answers, checks=(*checks, trimmed))

    def _is_trimmed(self, name: str) -> bool:
        """Whether every hit for every question is in a file that lists this person or one of its groups, as of now."""
        found = {blob for question in QUESTIONS for blob in self._blobs(question, name)}
        return found <= self._company.readable(name)

    def _blobs(self, question: str, name: str) -> list[str]:
        return [hit.blob for hit in self._hits(question, name)]

    def _hits(self, question: str, name: str) -> list[Hit]:
        return self._index.search(question, principal=self._people[name], limit=50)

    def _best(self, question: str, name: str) -> str:
        return next(iter(self._blobs(question, name)), "-")

    def _finds(self, path: str, question: str, name: str) -> bool:
        return f"company/{path}" in self._blobs(question, name)


def _only_one_embedded(report: SyncReport) -> bool:
    return report.chunks_embedded == 1 and report.chunks_reused == report.chunks - 1 > 0


def _configuration(embedder: str) -> str:
    options = "download = false\n" if embedder == "minilm" else ""
    return f"""[source]
type = "folder"
path = "company"
tags = "tags.json"

[embedder]
type = {json.dumps(embedder)}
{options}
[access]
mode = "groups"
tag_key = "allowed"
principals = "principals.json"
"""
