"""A storage account with a change feed on this machine, and an index that follows it: write, edit, retag and delete blobs, and see.

Needs: pip install 'ragstore[azure]', and Azurite (`npm install -g azurite`; in a checkout, `make test` installs it). Run it:

    python examples/follow_changes.py

Azurite writes no change feed, so this script does, in the layout of Azure's (`$blobchangefeed`). On a terminal you may go on by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

import ragstore
from ragstore.errors import ConfigError

CONTAINER = "handbook"
VARIABLE = "RAGSTORE_EXAMPLE_CONNECTION_STRING"
# The emulator's published key: it is the same for everybody and opens nothing else.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE = 60.0

CONFIGURATION = """
[source]
type = "azure-blob"
url = "{endpoint}/{container}"
connection_string_env = "{variable}"
feed = "change-feed"

[source.change-feed]
poll_seconds = 0.3       # Azure publishes minutes late; here it is at once

[embedder]
type = "hash"            # matches words and needs no model; leave this section out for the default, which knows meaning

[access]
mode = "groups"
tag_key = "allowed"
principals = "principals.json"
"""
PEOPLE = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]


# -- the change feed, as the service lays it out

SYNC = bytes.fromhex("0d070f0c04040c00010901070b0f0e09")
TYPES = ["UnspecifiedEventType", "BlobCreated", "BlobDeleted", "BlobPropertiesUpdated"]
APIS = ["UnspecifiedApi", "PutBlob", "DeleteBlob", "SetBlobTags"]
TEXTS = {"type": "map", "values": "string"}


def text(name: str) -> dict[str, Any]:
    """A field of text."""
    return {"name": name, "type": "string", "default": ""}


def choice(name: str, kind: str, symbols: list[str]) -> dict[str, Any]:
    """A field that is one of some names."""
    return {"name": name, "type": {"type": "enum", "name": kind, "symbols": symbols}}


DATA = [
    choice("api", "ApiEnum", APIS),
    *map(text, ("clientRequestId", "requestId", "etag", "contentType")),
    {"name": "contentLength", "type": "long", "default": 0},
    choice("blobType", "BlobTypeEnum", ["UnspecifiedBlobType", "BlockBlob"]),
    *map(text, ("url", "sequencer")),
    {"name": "blobTagsUpdated", "type": ["null", {"type": "map", "values": TEXTS}], "default": None},
    {"name": "storageDiagnostics", "type": TEXTS, "default": {}},
]
SCHEMA = {
    "type": "record",
    "name": "BlobChangeEvent",
    "namespace": "Microsoft.Storage",
    "fields": [
        {"name": "schemaVersion", "type": "long", "default": 4},
        *map(text, ("topic", "subject")),
        choice("eventType", "EventTypeEnum", TYPES),
        *map(text, ("eventTime", "id")),
        {"name": "data", "type": {"type": "record", "name": "BlobChangeEventData", "fields": DATA}},
    ],
}


def number(value: int) -> bytes:
    """Avro's long: zigzag, seven bits a byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def avro(kind: Any, value: Any) -> bytes:  # noqa: ANN401 - an Avro schema is plain JSON, and a value what it says
    """The value in Avro's binary form; the kinds are those of `SCHEMA`."""
    match kind:
        case "long":
            return number(value)
        case "string":
            encoded = str(value).encode()
            return number(len(encoded)) + encoded
        case ["null", some]:
            return number(0) if value is None else number(1) + avro(some, value)
        case {"type": "enum", "symbols": symbols}:
            return number(symbols.index(value))
        case {"type": "map", "values": values}:
            entries = b"".join(avro("string", key) + avro(values, one) for key, one in value.items())
            return (number(len(value)) + entries if value else b"") + number(0)
        case {"type": "record", "fields": fields}:
            return b"".join(avro(each["type"], value.get(each["name"], each.get("default"))) for each in fields)
    raise ValueError(kind)


@dataclass(kw_only=True)
class ChangeFeed:
    """Appends records to `$blobchangefeed`: a manifest for each hour, one shard, one growing chunk."""

    container: ContainerClient
    hour: str = ""

    def enable(self) -> None:
        """What is there a few minutes after the feed was switched on."""
        self.container.create_container()
        self._manifest("1601/01/01/0000", "Finalized", [])
        self._consumable()

    def record(self, events: Sequence[dict[str, Any]]) -> None:
        """Publish the events: the chunk first, then what points to it."""
        hour = f"{datetime.now(UTC):%Y/%m/%d/%H00}"
        folder = f"log/00/{hour}/"
        chunk = self.container.get_blob_client(f"{folder}00000.avro")
        if hour != self.hour:
            chunk.create_append_blob()
            schema = json.dumps(SCHEMA, separators=(",", ":"))
            header = {"avro.codec": "null", "avro.schema": schema}
            chunk.append_block(b"Obj\x01" + avro(TEXTS, header) + SYNC)
            if self.hour:
                self._manifest(self.hour, "Finalized", [f"log/00/{self.hour}/"])
            self.hour = hour
        body = b"".join(avro(SCHEMA, event) for event in events)
        chunk.append_block(number(len(events)) + number(len(body)) + body + SYNC)
        self._manifest(hour, "Publishing", [folder])
        self._consumable()

    def _manifest(self, hour: str, status: str, folders: Sequence[str]) -> None:
        begin = f"{hour[:10].replace('/', '-')}T{hour[11:13]}:00:00.000Z"
        manifest = {
            "version": 0,
            "begin": begin,
            "intervalSecs": 3600,
            "status": status,
            "config": {"version": 0, "numShards": len(folders), "recordsFormat": "avro", "formatSchemaVersion": 5},
            "chunkFilePaths": [f"{self.container.container_name}/{folder}" for folder in folders],
        }
        self.container.upload_blob(f"idx/segments/{hour}/meta.json", json.dumps(manifest), overwrite=True)

    def _consumable(self) -> None:
        last = {"version": 0, "lastConsumable": f"{datetime.now(UTC):%Y-%m-%dT%H:00:00.000Z}"}
        self.container.upload_blob("meta/segments.json", json.dumps(last), overwrite=True)


@dataclass(kw_only=True)
class Account:
    """Blobs that can be changed; each change is recorded, as the service would."""

    blobs: ContainerClient
    feed: ChangeFeed
    changes: int = 0
    began: str = field(default_factory=lambda: f"{time.time_ns():032X}")

    def put(self, name: str, content: str, readers: str = "staff") -> None:
        """Write a blob; `readers` are the ids that may read it."""
        done = self.blobs.get_blob_client(name).upload_blob(content, overwrite=True, tags={"allowed": readers})
        self._record(name, "BlobCreated", "PutBlob", etag=str(done["etag"]).strip('"'), contentLength=len(content.encode()))

    def allow(self, name: str, readers: str) -> None:
        """Change who may read it; the content stays."""
        blob = self.blobs.get_blob_client(name)
        before = blob.get_blob_tags()
        blob.set_blob_tags({"allowed": readers})
        self._record(name, "BlobPropertiesUpdated", "SetBlobTags", blobTagsUpdated={"previous": before, "current": {"allowed": readers}})

    def delete(self, name: str) -> None:
        """Delete a blob."""
        self.blobs.delete_blob(name)
        self._record(name, "BlobDeleted", "DeleteBlob")

    def _record(self, name: str, kind: str, api: str, **data: object) -> None:
        self.changes += 1
        event = {
            "schemaVersion": 5,
            "topic": "/subscriptions/none/resourceGroups/none/providers/Microsoft.Storage/storageAccounts/devstoreaccount1",
            "subject": f"/blobServices/default/containers/{self.blobs.container_name}/blobs/{name}",
            "eventType": kind,
            "eventTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}0Z",
            "id": str(uuid.uuid4()),
            "data": {"api": api, "blobType": "BlockBlob", "sequencer": f"{self.began}{self.changes:016x}", **data},
        }
        self.feed.record([event])


# -- Azurite and the worker


def azurite() -> list[str]:
    """The command of the emulator's blob service."""
    installed = shutil.which("azurite-blob")
    if installed:
        return [installed]
    folder = Path(os.environ.get("RAGSTORE_AZURITE") or Path(sys.prefix) / "azurite")
    script = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.prefix) / "bin"))
    if node is None or not script.is_file():
        sys.exit("Azurite is not installed: npm install -g azurite (or, in a checkout, `make test`)")
    return [node, str(script)]


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:  # noqa: ANN401 - those of Popen
    """The process, for as long as the block lasts."""
    process = subprocess.Popen(command, **options)  # noqa: S603 - the commands are ours
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        if process.poll() is not None or time.monotonic() - began > PATIENCE:
            sys.exit(f"{what} did not happen (its process {'ended' if process.poll() is not None else 'runs'})")
        time.sleep(0.02)
    return time.monotonic() - began


def answers(url: str) -> bool:
    """Whether somebody listens there; the emulator refuses an anonymous caller, but it is there."""
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own http address
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False


def can_be_asked(index: ragstore.Index) -> bool:
    """Whether the worker has begun an index; before that, a search says that nothing is indexed yet."""
    try:
        index.search("anything", principal=index.principal("Ada"))
    except ConfigError:
        return False
    return True


# -- the story


@dataclass(kw_only=True)
class Story:
    """What is done to the account, and what the two people find afterwards."""

    account: Account
    index: ragstore.Index
    worker: subprocess.Popen[bytes]

    def found(self, name: str, word: str) -> list[str]:
        """The blobs in which this person finds the word."""
        hits = self.index.search(word, principal=self.index.principal(name))
        return sorted({hit.blob for hit in hits if word in hit.text.lower()})

    def shows(self, told: str, word: str, ada: Sequence[str], bob: Sequence[str]) -> None:
        """Wait until both find what they should, and say how long it took."""
        wanted = [[f"{CONTAINER}/{blob}" for blob in blobs] for blobs in (ada, bob)]
        seconds = until(lambda: [self.found("Ada", word), self.found("Bob", word)] == wanted, self.worker, told)
        found = [f"{name} finds {', '.join(blobs) or 'nothing'}" for name, blobs in (("Ada", ada), ("Bob", bob))]
        print(f"{told}, {word!r}: {'; '.join(found)} ({seconds:.1f} s)", flush=True)

    def tell(self) -> None:
        """Each change reaches the index by the feed alone: nothing is listed in between."""
        self.account.put("pay.md", "# Pay\n\nSalaries rise by three percent in April.\n", readers="hr")
        self.shows("written", "salaries", ["pay.md"], [])
        self.account.allow("pay.md", "hr staff")
        self.shows("retagged", "salaries", ["pay.md"], ["pay.md"])
        self.account.put("pay.md", "# Pay\n\nWages rise in May.\n", readers="hr staff")
        self.shows("edited", "wages", ["pay.md"], ["pay.md"])
        self.account.delete("pay.md")
        self.shows("deleted", "wages", [], [])

    def by_hand(self) -> None:
        """Whatever you like."""
        print("Go on by hand: put NAME TEXT | allow NAME IDS | delete NAME | ask WORD; Ctrl-D ends.")
        for line in sys.stdin:
            command, _, rest = line.strip().partition(" ")
            name, _, more = rest.partition(" ")
            try:
                match command:
                    case "put":
                        self.account.put(name, more)
                    case "allow":
                        self.account.allow(name, more)
                    case "delete":
                        self.account.delete(name)
                    case "ask":
                        print("\n".join(f"{person} finds {', '.join(self.found(person, rest)) or 'nothing'}" for person in ("Ada", "Bob")))
                    case _:
                        print("put NAME TEXT | allow NAME IDS | delete NAME | ask WORD")
            except AzureError as error:
                print(str(error).partition("\n")[0])


def main() -> None:
    """Everything lies in a temporary folder, and is gone in the end."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "azurite")]
        command = [*azurite(), *options, "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        emulator = stack.enter_context(running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until(lambda: answers(endpoint), emulator, "the start of Azurite")
        connection = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={endpoint};"
        os.environ[VARIABLE] = connection

        clients = [ContainerClient.from_connection_string(connection, container) for container in (CONTAINER, "$blobchangefeed")]
        blobs, log = (stack.enter_context(client) for client in clients)
        blobs.create_container()
        feed = ChangeFeed(container=log)
        feed.enable()
        account = Account(blobs=blobs, feed=feed)
        account.put("keys.md", "# Keys\n\nEvery access key is replaced after ninety days.\n")

        file = folder / "ragstore.toml"
        file.write_text(CONFIGURATION.format(endpoint=endpoint, container=CONTAINER, variable=VARIABLE))
        (folder / "principals.json").write_text(json.dumps(PEOPLE))
        worker = stack.enter_context(running([str(Path(sys.executable).with_name("ragstore")), "worker", "--config", str(file), "--quiet"]))
        ledger = folder / ".ragstore" / "ledger.db"
        until(ledger.exists, worker, "the start of the worker")
        with ragstore.open(file) as index:
            until(lambda: can_be_asked(index), worker, "the beginning of the index")
            story = Story(account=account, index=index, worker=worker)
            story.shows("listed at the start", "ninety", ["keys.md"], ["keys.md"])
            story.tell()
            if sys.stdin.isatty():
                story.by_hand()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
