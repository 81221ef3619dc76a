"""What every test may ask for: Hypothesis profiles, the shared test data, and Azurite with a fresh container and queue."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Verbosity, settings

pytest.register_assert_rewrite("ragstore.testing")

# No deadlines: a busy machine is no bug. `ci` is repeatable and prints how to reproduce; `long` is for a night.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("debug", max_examples=10, deadline=None, verbosity=Verbosity.verbose)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_AZURITE_START_SECONDS = 60


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


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data, which is not part of the repository."""
    folder = os.environ.get("RAGSTORE_SHARED")
    if not folder:
        pytest.skip("RAGSTORE_SHARED does not name the folder of shared test data")
    return Path(folder)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite on a free port of 127.0.0.1 for the whole session."""
    with _running_azurite("blob", tmp_path_factory.mktemp("azurite")) as port:
        yield Azurite(port=port)


@pytest.fixture(scope="session")
def azurite_queue(azurite: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The same emulator with its queue service, which is a process of its own and started only where it is asked for."""
    with _running_azurite("queue", tmp_path_factory.mktemp("azurite-queue")) as port:
        yield replace(azurite, queue_port=port)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL for the whole session, on a Unix socket."""
    from tests.support import postgres

    with postgres.running() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a ledger in a PostgreSQL schema of this test's own."""
    from tests.support import postgres

    with postgres.schema(postgres_server) as url:
        yield url


@pytest.fixture
def container(azurite: Azurite) -> str:
    """The name of a fresh, empty container in Azurite."""
    from azure.storage.blob import ContainerClient

    name = f"test-{uuid.uuid4().hex[:20]}"
    with ContainerClient.from_connection_string(azurite.connection_string, name) as client:
        client.create_container()
    return name


@pytest.fixture
def queue(azurite_queue: Azurite) -> str:
    """The name of a fresh, empty queue in Azurite."""
    from azure.storage.queue import QueueClient

    name = f"test-{uuid.uuid4().hex[:20]}"
    with QueueClient.from_connection_string(azurite_queue.connection_string, name) as client:
        client.create_queue()
    return name


def _azurite_command(service: str) -> list[str]:
    """Node with a service of the emulator, as `make test` installs it; RAGSTORE_AZURITE names another folder."""
    folder = Path(os.environ.get("RAGSTORE_AZURITE") or Path(sys.prefix) / "azurite")
    script = folder / "node_modules" / "azurite" / "dist" / "src" / service / "main.js"
    if not script.is_file():
        pytest.skip(f"Azurite is not installed in {folder} (`make test` installs it; RAGSTORE_AZURITE names another folder)")
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.prefix) / "bin"))
    if node is None:
        pytest.skip("Azurite needs Node.js, and there is no `node` on the PATH")
    return [node, str(script)]


@contextlib.contextmanager
def _running_azurite(service: str, location: Path) -> Iterator[int]:
    """The port of a service of the emulator, for as long as the block lasts."""
    process, port = _start_azurite(service, location)
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start_azurite(service: str, location: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start it and wait until it answers. The port may be lost to another process before Azurite binds it: then try the next."""
    command = _azurite_command(service)
    log = location / "output.txt"
    for _attempt in range(3):
        port = _free_port()
        options = [f"--{service}Host", "127.0.0.1", f"--{service}Port", str(port), "--location", str(location)]
        with log.open("wb") as output:
            process = subprocess.Popen([*command, *options, "--skipApiVersionCheck", "--silent"], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _AZURITE_START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _answers(f"http://127.0.0.1:{port}/"):
                return process, port
            time.sleep(0.05)
        process.kill()
        process.wait()
    pytest.fail(f"Azurite did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


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
