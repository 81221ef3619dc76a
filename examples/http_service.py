"""An application's side of `ragstore serve`: two people with a key each, and the same requests of both.

Run it: pip install 'ragstore[service]', then python examples/http_service.py
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

import ragstore
from ragstore.service.keys import new_key

CONFIGURATION = """
source = {type = "folder", path = "docs", tags = "tags.json"}
embedder = {type = "hash"}      # matches words and needs no model; leave this line out for the default, which knows meaning
access = {mode = "groups", tag_key = "allowed", principals = "principals.json"}
"""
RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]


def prepare(folder: Path) -> dict[str, str]:
    """Two documents, who may read each, and who asks, indexed; the keys of those who ask out."""
    (folder / "docs").mkdir()
    (folder / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    (folder / "docs" / "pay.md").write_text("# Pay\n\nSalaries rise by three percent in April.\n")
    (folder / "tags.json").write_text(json.dumps({"keys.md": {"allowed": "staff"}, "pay.md": {"allowed": "hr"}}))
    people = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]
    (folder / "principals.json").write_text(json.dumps(people))
    keys, sections = {}, ""
    for person in ("Ada", "Bob"):
        keys[person], digest = new_key()  # as `ragstore serve --new-key` does
        sections += f'[[service.keys]]\nprincipal = "{person}"\nhash = "{digest}"\n'
    (folder / "ragstore.toml").write_text(CONFIGURATION + sections)
    with ragstore.open(folder / "ragstore.toml") as index:
        index.sync()
    return keys


def ask(url: str, keys: Mapping[str, str]) -> None:
    """The same question as two people; then Bob asks for what Ada found."""
    found: dict[str, Any] = {}
    for person, key in keys.items():
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
            found[person] = client.post("/v1/search", json={"query": "when do salaries rise?", "limit": 1}).json()["hits"]
            print(f"{person} finds {', '.join(hit['blob'] for hit in found[person]) or 'nothing'}")
            again = client.get(f"/v1/chunks/{found['Ada'][0]['chunk']}")
            print(f"{person} asks for what Ada found: {again.json().get('text') or again.json()['detail']}")
            prompt = client.post("/v1/prompt", json={"query": "when are keys replaced?", "max_tokens": 1000}).json()
            print(f"{person}'s prompt cites {', '.join(sorted(citation['blob'] for citation in prompt['citations']))}")


def main() -> None:
    """The story."""
    with tempfile.TemporaryDirectory() as name:
        keys = prepare(Path(name))
        command = [*RAGSTORE, "serve", "--port", "0", "--json", "--quiet", "--config", f"{name}/ragstore.toml"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - this program itself
            try:
                said = itertools.islice(server.stdout or (), 3)  # once it listens
                address = json.loads("".join(said))
                ask(address["url"], keys)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
