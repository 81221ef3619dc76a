"""What every test may ask for: Hypothesis profiles, the shared test data, and Azurite with a fresh container and queue."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Verbosity, settings

from tests.support.azurite import Azurite, Emulator

pytest.register_assert_rewrite("ragstore.testing")

# No deadlines: a busy machine is no bug. `ci` is repeatable and prints how to reproduce; `long` is for a night.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("debug", max_examples=10, deadline=None, verbosity=Verbosity.verbose)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

__all__ = ["Azurite"]


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
    with closing(Emulator("blob", tmp_path_factory.mktemp("azurite"))) as blobs:
        yield Azurite(port=blobs.port)


@pytest.fixture(scope="session")
def azurite_queue(azurite: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The same emulator with its queue service, which is a process of its own and started only where it is asked for."""
    with closing(Emulator("queue", tmp_path_factory.mktemp("azurite-queue"))) as queues:
        yield replace(azurite, queue_port=queues.port)


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
