"""An application that knows OpenAI's API and nothing of ragstore: with another address and key, it answers from documents, with citations.

Run it: pip install 'ragstore[service,openai]', then python examples/chat_with_openai_sdk.py
The model is a stand-in of a few lines here; let base_url below [ask] name a real one, such as http://127.0.0.1:11434/v1.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
from typing_extensions import override

import ragstore
from ragstore.service.keys import new_key

CONFIGURATION = """
source = {type = "folder", path = "docs", tags = "tags.json"}
embedder = {type = "hash"}      # matches words and needs no model; leave this line out for the default, which knows meaning
access = {mode = "groups", tag_key = "allowed", principals = "principals.json"}
"""
RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]


class Parrot(BaseHTTPRequestHandler):
    """A model that says what stands in the first source, and cites it."""

    def do_POST(self) -> None:
        """Answer `/v1/chat/completions`."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        source = re.search(r"\n\n(.*?)\n</source \[1\]", asked, flags=re.DOTALL)
        sentence = source[1].splitlines()[-1].rstrip(".") if source else "The documents do not say that"
        pieces = [*re.findall(r"\S+\s*", sentence), " [1]." if source else "."]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece, finish in [*((piece, None) for piece in pieces), ("", "stop")]:
            event = {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": finish}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def prepare(folder: Path, model_url: str) -> dict[str, str]:
    """Two documents, who may read each, and who asks, indexed; the keys of those who ask out."""
    (folder / "docs").mkdir()
    (folder / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    (folder / "docs" / "pay.md").write_text("# Pay\n\nSalaries rise by three percent in April.\n")
    (folder / "tags.json").write_text(json.dumps({"keys.md": {"allowed": "staff"}, "pay.md": {"allowed": "hr"}}))
    people = [{"id": "ada", "name": "Ada", "groups": ["hr"]}, {"id": "bob", "name": "Bob", "groups": []}]
    (folder / "principals.json").write_text(json.dumps(people))
    keys, sections = {}, f'[ask]\nbase_url = "{model_url}"\nmodel = "parrot"\n'
    for person in ("Ada", "Bob"):
        keys[person], digest = new_key()  # as `ragstore serve --new-key` does
        sections += f'[[service.keys]]\nprincipal = "{person}"\nhash = "{digest}"\n'
    (folder / "ragstore.toml").write_text(CONFIGURATION + sections)
    with ragstore.open(folder / "ragstore.toml") as index:
        index.sync()
    return keys


def ask(client: openai.OpenAI, person: str) -> None:
    """One question, as any application of OpenAI's API puts it; the citations are what is added."""
    question: list[Any] = [{"role": "user", "content": "When do salaries rise?"}]
    answer = ""
    for chunk in client.chat.completions.create(model="gpt-5", messages=question, stream=True):
        answer += chunk.choices[0].delta.content or ""
        for source in getattr(chunk, "citations", ()):  # in the last one
            print(f"{person}: [{source['number']}] is {source['blob']}, characters {source['start']} to {source['end']}")
    print(f"{person} is told: {answer}")


def talk(client: openai.OpenAI) -> None:
    """A conversation that the server keeps: only the new message is sent."""
    conversation = client.conversations.create()
    for text in ("When do salaries rise?", "By how much do they rise in April?"):
        messages: list[Any] = [{"role": "user", "content": text}]
        client.chat.completions.create(model="gpt-5", messages=messages, extra_body={"conversation": conversation.id})
    kept: Any = client.conversations.retrieve(conversation.id)
    print(f"the conversation has {len(kept.turns)} turns")
    client.conversations.delete(conversation.id)


def main() -> None:
    """The story."""
    with tempfile.TemporaryDirectory() as name, ThreadingHTTPServer(("127.0.0.1", 0), Parrot) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        keys = prepare(Path(name), f"http://127.0.0.1:{model.server_port}/v1")
        command = [*RAGSTORE, "serve", "--port", "0", "--json", "--quiet", "--config", f"{name}/ragstore.toml"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - this program itself
            try:
                address = json.loads("".join(itertools.islice(server.stdout or (), 3)))  # once it listens
                for person, key in keys.items():
                    with openai.OpenAI(base_url=f"{address['url']}/v1", api_key=key) as client:
                        ask(client, person)
                        if person == "Ada":
                            talk(client)
            finally:
                server.terminate()
                model.shutdown()


if __name__ == "__main__":
    main()
