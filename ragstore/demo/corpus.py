"""Nothing in; the files of a small company, who may read which, and who asks, out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files as resources
from typing import Final

from ragstore.demo.formats import docx, html, mail, pdf

PRINCIPALS: Final = (
    {"id": "ada", "name": "Ada", "groups": ["staff", "finance", "hr"]},
    {"id": "bob", "name": "Bob", "groups": ["staff"]},
)

READERS: Final[Mapping[str, str]] = {
    "handbook.md": "staff",
    "travel.html": "staff",
    "opening-hours.txt": "staff",
    "broken.pdf": "staff",
    "suppliers.csv": "finance",
    "contracts/harbour.pdf": "finance",
    "mail/kestrel.eml": "finance hr",
    "salaries.json": "hr",
    "interviews.docx": "hr",
}
"""Ids that may read each file. `draft.txt` is not here: a file that lists nobody is read by nobody."""

EDITED: Final = ("replaced every 90 days", "replaced every 30 days")
"""A sentence of the handbook before and after the edit."""


def files() -> dict[str, bytes]:
    """Path -> content: ten files in eight formats, one of them broken."""
    kestrel = mail(sender="ada@example.org", to="board@example.org", subject="Project Kestrel", body=_text("kestrel.txt"))
    landlord, end = _text("harbour.txt").split("\n\nTermination")
    return {
        "handbook.md": _text("handbook.md").encode(),
        "travel.html": html(title="Travelling for the company", paragraphs=_paragraphs("travel.txt")),
        "opening-hours.txt": _text("opening-hours.txt").encode(),
        "broken.pdf": b"%PDF-1.4\nthis file was cut off while it was copied",
        "suppliers.csv": _text("suppliers.csv").encode(),
        "contracts/harbour.pdf": pdf([landlord, f"Termination{end}"]),
        "mail/kestrel.eml": kestrel,
        "salaries.json": _text("salaries.json").encode(),
        "interviews.docx": docx(_paragraphs("interviews.txt")),
        "draft.txt": _text("draft.txt").encode(),
    }


def _text(name: str) -> str:
    return resources("ragstore.demo").joinpath("texts", name).read_text(encoding="utf-8")


def _paragraphs(name: str) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in _text(name).split("\n\n")]
