"""Where a LanceDB index lies, what opens it, and what its failures mean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, TransientError
from ragstore.plugins import build
from ragstore_lancedb import LanceDBStore
from ragstore_lancedb.connection import Location
from ragstore_lancedb.failures import is_conflict, is_gone, is_missing_table, translated


def location(path: str = "az://container/prefix", **options: str) -> Location:
    named = dict.fromkeys(("account", "endpoint", "connection_string_env", "account_key_env", "sas_token_env")) | options
    return Location.of(path, Path("base"), **named)


def test_a_folder_is_relative_to_the_base() -> None:
    assert location(".ragstore/index").uri == str(Path("base/.ragstore/index"))
    assert location("/absolute").uri == "/absolute"


def test_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="az://"):
        location("s3://bucket/prefix")


def test_a_connection_string_becomes_storage_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5==;EndpointSuffix=core.windows.net")
    assert location(connection_string_env="CONNECTION").storage_options() == {"account_name": "acc", "account_key": "a2V5=="}


def test_the_emulators_connection_string_allows_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", "AccountName=acc;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/acc;")
    options = location(connection_string_env="CONNECTION").storage_options()
    assert options["azure_storage_endpoint"] == "http://127.0.0.1:1/acc"
    assert options["allow_http"] == "true"


def test_a_connection_string_with_a_sas_names_the_account_by_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", "BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D")
    options = location(connection_string_env="CONNECTION").storage_options()
    assert (options["account_name"], options["sas_token"]) == ("acc", "sv=1&sig=x%3D")


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(ConfigError, match="'MISSING'"):
        location(account="acc", account_key_env="MISSING").storage_options()


def test_a_broken_connection_string_is_refused_without_quoting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", "AccountKey=c2VjcmV0")
    with pytest.raises(ConfigError) as raised:
        location(connection_string_env="CONNECTION").storage_options()
    assert "c2VjcmV0" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", ".a", "a'b"])
def test_a_collection_name_that_is_no_table_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="collection"):
        LanceDBStore(base=tmp_path, collection=name, dimensions=3)


def test_it_is_built_from_configuration(tmp_path: Path) -> None:
    store = build("stores", "lancedb", {"path": "index", "exact_below": 10}, base=tmp_path, collection="chunks", dimensions=3)
    assert isinstance(store, LanceDBStore)
    with pytest.raises(ConfigError, match="did you mean 'ann_from'"):
        build("stores", "lancedb", {"ann_form": 1}, base=tmp_path, collection="chunks", dimensions=3)


async def test_reading_creates_no_table(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, path="index", collection="chunks", dimensions=3)
    assert (await store.stats()).rows == 0
    assert list((tmp_path / "index").iterdir()) == []


def test_failures_are_sorted_by_what_to_do() -> None:
    conflict = RuntimeError("lance error: Retryable commit conflict for version 7: Rewrite preempted by concurrent transaction")
    assert is_conflict(conflict)
    assert not is_gone(conflict)
    assert is_missing_table(ValueError("Table 'chunks' was not found"))
    assert not is_missing_table(ValueError("Table 'chunks' is broken: not found: x.lance"))
    assert is_gone(RuntimeError("LanceError(IO): Wrapped error: Not found: /index/chunks.lance/data/1.lance"))
    container = OSError(r'status: 404, body: "<Error>\n <Code>ContainerNotFound</Code>\n <Message>No such container.\nRequestId:1"')
    assert not is_gone(container)
    assert isinstance(translated(container, "az://c"), ConfigError)
    assert isinstance(translated(PermissionError(13, "Permission denied"), "/index"), ConfigError)
    assert isinstance(translated(OSError(28, "No space left on device"), "/index"), TransientError)
    assert isinstance(translated(RuntimeError(""), "/index"), TransientError)


def test_the_shortened_import_leaves_pydantic_as_it_was() -> None:
    code = """
import sys, pydantic
before, plain = pydantic.validate_call, pydantic.BaseModel.model_config
from ragstore_lancedb.connection import load_lancedb
assert "lancedb" not in sys.modules
lancedb = load_lancedb()
assert pydantic.validate_call is before
assert pydantic.BaseModel.model_config is plain
assert load_lancedb() is lancedb
from lance_namespace_urllib3_client.api.table_api import TableApi
try:
    TableApi.describe_table(TableApi(), id=3)
except pydantic.ValidationError as error:
    assert "Input should be a valid string" in str(error)
else:
    raise AssertionError("a validator that was put off does not validate")
from lance_namespace_urllib3_client.models.list_tables_request import ListTablesRequest
assert ListTablesRequest(limit=3).model_dump()["limit"] == 3
try:
    ListTablesRequest(limit="x")
except pydantic.ValidationError as error:
    assert "limit" in str(error)
else:
    raise AssertionError("a model that was put off does not validate")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_what_lance_logs_does_not_reach_stderr_and_a_person_may_ask_for_it() -> None:
    script = "import os\nfrom ragstore_lancedb.connection import load_lancedb\nload_lancedb()\nprint(os.environ['LANCEDB_LOG'])"
    for asked, level in (({}, "error"), ({"LANCEDB_LOG": "info"}, "info")):
        environment = {**{k: v for k, v in os.environ.items() if k != "LANCEDB_LOG"}, **asked}
        ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert ended.stdout.split()[-1] == level
