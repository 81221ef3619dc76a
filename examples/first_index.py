"""A folder that changes, and two people who ask: index, search, edit, index again.

Run it: python examples/first_index.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import ragstore

CONFIGURATION = """
[source]
type = "folder"
path = "docs"
tags = "tags.json"

[embedder]
type = "hash"            # matches words and needs no model; leave this section out for the default, which knows meaning

[access]
mode = "groups"
tag_key = "allowed"
principals = "principals.json"
"""


def prepare(folder: Path) -> None:
    """Two documents, who may read each, and who asks."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    (docs / "pay.md").write_text("# Pay\n\nSalaries rise by three percent in April.\n")
    allow(folder, {"keys.md": "staff", "pay.md": "hr"})
    people = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]
    (folder / "principals.json").write_text(json.dumps(people))
    (folder / "ragstore.toml").write_text(CONFIGURATION)


def allow(folder: Path, readers: dict[str, str]) -> None:
    """Write the index tags: path -> ids that may read it."""
    (folder / "tags.json").write_text(json.dumps({path: {"allowed": ids} for path, ids in readers.items()}))


def main() -> None:
    """The story."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        with ragstore.open(folder / "ragstore.toml") as index:
            show("first pass", index.sync().as_dict())
            ask(index, "when do salaries rise?")

            keys = folder / "docs" / "keys.md"
            keys.write_text(keys.read_text().replace("ninety", "thirty"))
            show("after an edit", index.sync().as_dict())

            allow(folder, {"keys.md": "staff", "pay.md": "hr staff"})
            show("after a retag", index.sync().as_dict())
            ask(index, "when do salaries rise?")

            prompt = index.prompt("when are keys replaced?", principal=index.principal("Bob"), max_tokens=1000)
            print(f"a prompt of {prompt.tokens} tokens; [1] is {prompt.citations[0].blob}, version {prompt.citations[0].etag}")


def ask(index: ragstore.Index, question: str) -> None:
    """The same question as two people."""
    for name in ("Ada", "Bob"):
        hits = index.search(question, principal=index.principal(name))
        print(f"{name} finds {', '.join(hit.blob for hit in hits) or 'nothing'}")


def show(title: str, report: dict[str, object]) -> None:
    """What a pass did."""
    done = {
        key: value for key, value in report.items() if key in ("added", "changed", "retagged", "chunks_embedded", "chunks_reused") and value
    }
    print(f"{title}: {done}")


if __name__ == "__main__":
    main()
