"""The name of a vendor in, its fake in a process of its own out, so that the time of a client is that of the client alone.

    python tests/benchmarks/fakes.py azure-search|pinecone

It says where it listens, and ends with its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.topics import DIMENSIONS
from tests.fakes.azure_search import AzureSearch
from tests.fakes.pinecone import PineconeServer

KEY = "benchmark"
"""What opens either."""


@contextmanager
def apart(vendor: str) -> Iterator[str]:
    """Where the fake listens for as long as the block runs. It checks limits, but no contract, which takes it longer than to answer."""
    environment = {name: value for name, value in os.environ.items() if name != "RAGSTORE_SHARED"}
    process = subprocess.Popen(
        [sys.executable, __file__, vendor], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def main() -> int:
    """Serve until nobody listens."""
    if sys.argv[1:] == ["azure-search"]:
        with AzureSearch(key=KEY) as search:
            print(search.url, flush=True)
            sys.stdin.read()
        return 0
    if sys.argv[1:] == ["pinecone"]:
        with PineconeServer(key=KEY, dimension=DIMENSIONS) as pinecone:
            print(pinecone.index_host(), flush=True)
            sys.stdin.read()
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
