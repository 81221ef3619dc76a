"""A folder in; Azurite, the emulator of Azure Storage, over it out: it may be stopped, and started again on the same port and data."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

_START_SECONDS = 60
_STOP_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Azurite:
    """A running Azure Storage emulator: its blob service, and its queue service where `azurite_queue` was asked for."""

    port: int
    queue_port: int | None = None
    account_name: str = "devstoreaccount1"
    # The emulator's published key: it is the same for everybody and opens nothing else.
    account_key: str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    @property
    def blob_endpoint(self) -> str:
        """Without a slash at the end; append `/CONTAINER`."""
        return f"http://127.0.0.1:{self.port}/{self.account_name}"

    @property
    def queue_endpoint(self) -> str:
        """Without a slash at the end; append `/QUEUE`."""
        assert self.queue_port is not None, "ask for the fixture `azurite_queue`"
        return f"http://127.0.0.1:{self.queue_port}/{self.account_name}"

    @property
    def connection_string(self) -> str:
        """For `from_connection_string` and for `connection_string_env`."""
        account = f"AccountName={self.account_name};AccountKey={self.account_key}"
        queues = f"QueueEndpoint={self.queue_endpoint};" if self.queue_port is not None else ""
        return f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={self.blob_endpoint};{queues}"


class Emulator:
    """One service of Azurite in a process of its own. `close` it, whatever happened."""

    def __init__(self, service: Literal["blob", "queue"], folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._command = _command(service)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = self._first_start()

    def start(self) -> None:
        """Again on the same port, after `stop`."""
        self._process = self._launch(self.port)
        if not self._comes_up(self._process, self.port):
            self.stop()
            pytest.fail(f"Azurite did not start again: {self._output()}")

    def stop(self) -> None:
        """In good order, so that it saves what it holds."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    close = stop

    def _first_start(self) -> int:
        """A free port may be lost to another process before Azurite binds it: then try the next."""
        for _attempt in range(3):
            port = _free_port()
            self._process = self._launch(port)
            if self._comes_up(self._process, port):
                return port
            self._process.kill()
            self._process.wait()
        pytest.fail(f"Azurite did not start: {self._output()}")

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        name = self._service
        options = [f"--{name}Host", "127.0.0.1", f"--{name}Port", str(port), "--location", str(self._folder)]
        with (self._folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [*self._command, *options, "--skipApiVersionCheck", "--silent"], stdout=output, stderr=subprocess.STDOUT
            )

    @staticmethod
    def _comes_up(process: subprocess.Popen[bytes], port: int) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _answers(f"http://127.0.0.1:{port}/"):
                return True
            time.sleep(0.05)
        return False

    def _output(self) -> str:
        return (self._folder / "output.txt").read_text(encoding="utf-8", errors="replace")[-2000:]


def _command(service: str) -> list[str]:
    """Node with a service of the emulator, as `make test` installs it; RAGSTORE_AZURITE names another folder."""
    folder = Path(os.environ.get("RAGSTORE_AZURITE") or Path(sys.prefix) / "azurite")
    script = folder / "node_modules" / "azurite" / "dist" / "src" / service / "main.js"
    if not script.is_file():
        pytest.skip(f"Azurite is not installed in {folder} (`make test` installs it; RAGSTORE_AZURITE names another folder)")
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.prefix) / "bin"))
    if node is None:
        pytest.skip("Azurite needs Node.js, and there is no `node` on the PATH")
    return [node, str(script)]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    """Any HTTP response will do: the emulator refuses an anonymous caller, but it is there."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
