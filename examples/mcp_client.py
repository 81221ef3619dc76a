"""An agent's side of the Model Context Protocol: it starts `ragstore mcp` for each person, and calls its tools.

Run it: pip install 'ragstore[mcp]', then python examples/mcp_client.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

import ragstore

CONFIGURATION = """
source = {type = "folder", path = "docs", tags = "tags.json"}
embedder = {type = "hash"}      # matches words and needs no model; leave this line out for the default, which knows meaning
access = {mode = "groups", tag_key = "allowed", principals = "principals.json"}
"""


def prepare(folder: Path) -> Path:
    """Two documents, who may read each, and who asks, indexed; the configuration out."""
    (folder / "docs").mkdir()
    (folder / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    (folder / "docs" / "pay.md").write_text("# Pay\n\nSalaries rise by three percent in April.\n")
    (folder / "tags.json").write_text(json.dumps({"keys.md": {"allowed": "staff"}, "pay.md": {"allowed": "hr"}}))
    people = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]
    (folder / "principals.json").write_text(json.dumps(people))
    (folder / "ragstore.toml").write_text(CONFIGURATION)
    with ragstore.open(folder / "ragstore.toml") as index:
        index.sync()
    return folder / "ragstore.toml"


async def ask(configuration: Path, person: str, fetched: str | None = None) -> str | None:
    """Search and fetch as one person; the id of the best hit out."""
    # A desktop is told the same in its settings: {"command": "ragstore", "args": ["mcp", "--as", "Ada", "--config", "/full/path.toml"]}
    words = ["-c", "from ragstore.cli import main; main()", "mcp", "--as", person, "--config", str(configuration)]
    async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
        found: Any = await client.call_tool("search", {"query": "when do salaries rise?", "limit": 1})
        hits = found.structured_content["hits"]
        print(f"{person}'s agent finds {', '.join(hit['blob'] for hit in hits)}")
        if fetched is not None:
            answer: Any = await client.call_tool("fetch", {"id": fetched})
            print(f"{person}'s agent fetches what Ada's found: {answer.content[0].text}")
        return hits[0]["chunk"] if hits else None


async def main() -> None:
    """The same question as two people."""
    with tempfile.TemporaryDirectory() as name:
        configuration = prepare(Path(name))
        best = await ask(configuration, "Ada")
        await ask(configuration, "Bob", fetched=best)


if __name__ == "__main__":
    asyncio.run(main())
