"""A container of Azure Blob Storage (or Azurite) in, an index over it and an answer out.

Needs: pip install 'ragstore[azure]'. Say where the container is, and what to ask:

    export RAGSTORE_EXAMPLE_URL=https://ACCOUNT.blob.core.windows.net/CONTAINER
    python examples/azure_container.py "how often are keys replaced?"

The identity of `az login` or of the machine is used; where AZURE_STORAGE_CONNECTION_STRING is set, that. The index lies in ./.ragstore.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ragstore
from ragstore.config import Settings, from_mapping
from ragstore.errors import RagstoreError

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"


def settings(url: str) -> Settings:
    """What a `ragstore.toml` would say. Every caller of this example may read everything: see `[access]` in the README."""
    source = {"type": "azure-blob", "url": url}
    if CONNECTION_STRING in os.environ:
        source["connection_string_env"] = CONNECTION_STRING
    return from_mapping({"source": source, "access": {"mode": "open"}}, base=Path.cwd())


def main() -> None:
    """One pass, one question."""
    url = os.environ.get("RAGSTORE_EXAMPLE_URL")
    if not url:
        sys.exit("RAGSTORE_EXAMPLE_URL must name a container: https://ACCOUNT.blob.core.windows.net/CONTAINER")
    question = " ".join(sys.argv[1:]) or "what is in here?"
    with ragstore.open(settings(url)) as index:
        report = index.sync()
        print(f"blobs: {report.blobs}, added: {report.added}, changed: {report.changed}, chunks embedded: {report.chunks_embedded}")
        for failure in index.failures():
            print(f"not indexed: {failure['blob']}: {failure['reason']}")
        for hit in index.search(question, principal=index.principal(), limit=3):
            print(f"{hit.score:.3f}  {hit.blob}  {' '.join(hit.text.split())[:80]}")


if __name__ == "__main__":
    try:
        main()
    except RagstoreError as error:
        sys.exit(str(error))  # it says what to do next
