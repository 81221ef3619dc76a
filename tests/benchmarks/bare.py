"""A folder with an index and a principal's id in; a route of FastAPI that embeds and asks the store, and does nothing else, out.

    python -m tests.benchmarks.bare FOLDER PRINCIPAL

What the service is compared with: no credential, no check of what the store says, no fusion, no log.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from ragstore.index import open_async
from tests.benchmarks.serving import Parts


class Query(BaseModel):
    """As the service has it."""

    query: str
    limit: int = 8


async def serve(folder: Path, name: str) -> None:
    """Until the process is ended."""
    async with open_async(folder / "ragstore.toml") as index:
        parts = Parts(index, index.principal(name))
        await parts.search("ready")
        app = FastAPI()

        @app.post("/v1/search")
        async def search(body: Query) -> dict[str, Any]:
            return {"hits": [{"text": text} for text in await parts.search(body.query)]}

        @app.get("/readyz")
        async def ready() -> dict[str, str]:
            return {"status": "ready"}

        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
            await server.serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
