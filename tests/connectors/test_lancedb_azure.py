"""The LanceDB store in a container of Azurite, opened with each kind of credential."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import PutRows
from ragstore.errors import ConfigError, TransientError
from ragstore.testing.rows import DIMENSIONS, row
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_lancedb import LanceDBStore

pytestmark = pytest.mark.azurite


class TestLanceDBStoreInAzure(StoreSuite):
    store_type = "lancedb"
    waived = dict.fromkeys(
        (
            "test_random_filters_mean_what_the_algebra_says",
            "test_a_value_in_a_filter_is_data",
            "test_every_kind_of_filter_means_what_the_algebra_says",
            "test_empty_lists_and_empty_texts_are_values_like_others",
            "test_maintenance_changes_no_row",
            "test_a_text_query_is_data",
            "test_a_text_query_finds_what_shares_one_of_our_terms",
            "test_words_are_found_without_spaces_and_accents",
        ),
        "minutes against the emulator, and about values, not about where they lie: the suite in a folder asks for it",
    )

    @pytest.fixture
    @override
    def make_store(self, azurite: Any, lancedb_container: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeStore:
        monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
        path = f"az://{lancedb_container}/{uuid.uuid4().hex}/index"
        return lambda collection, dimensions: LanceDBStore(
            base=tmp_path, path=path, collection=collection, dimensions=dimensions, connection_string_env="TEST_CONNECTION"
        )


@pytest.fixture(scope="module")
def lancedb_container(azurite: Any) -> str:
    """One container for the module; every test has its own prefix in it."""
    from azure.storage.blob import ContainerClient

    name = f"test-{uuid.uuid4().hex[:20]}"
    with ContainerClient.from_connection_string(azurite.connection_string, name) as client:
        client.create_container()
    return name


async def test_a_key_and_a_sas_open_it_too(azurite: Any, lancedb_container: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    sas = generate_container_sas(
        azurite.account_name,
        lancedb_container,
        account_key=azurite.account_key,
        permission=ContainerSasPermissions(read=True, write=True, list=True, delete=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    monkeypatch.setenv("TEST_KEY", azurite.account_key)
    monkeypatch.setenv("TEST_SAS", f"?{sas}")

    def opened(**credential: str) -> LanceDBStore:
        return LanceDBStore(
            base=tmp_path,
            path=f"az://{lancedb_container}/credentials",
            collection="chunks",
            dimensions=DIMENSIONS,
            account=azurite.account_name,
            endpoint=azurite.blob_endpoint,
            account_key_env=credential.get("key"),
            sas_token_env=credential.get("sas"),
        )

    await opened(key="TEST_KEY").apply([PutRows(rows=[row("a")])])
    await opened(sas="TEST_SAS").apply([PutRows(rows=[row("b")])])
    assert (await opened(key="TEST_KEY").stats()).rows == 2


async def test_a_wrong_key_is_a_configuration_error(azurite: Any, lancedb_container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "d3Jvbmc=")
    store = LanceDBStore(
        base=Path(),
        path=f"az://{lancedb_container}/x",
        collection="chunks",
        dimensions=DIMENSIONS,
        account=azurite.account_name,
        endpoint=azurite.blob_endpoint,
        account_key_env="TEST_KEY",
    )
    with pytest.raises(ConfigError, match="credentials") as raised:
        await store.stats()
    assert "d3Jvbmc=" not in str(raised.value)


async def test_a_container_that_does_not_exist_is_never_taken_for_an_empty_index(azurite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_CONNECTION", azurite.connection_string)
    store = LanceDBStore(
        base=Path(), path="az://no-such-container/x", collection="chunks", dimensions=DIMENSIONS, connection_string_env="TEST_CONNECTION"
    )
    with pytest.raises(ConfigError, match="container"):
        await store.stats()


async def test_an_account_that_does_not_answer_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "d3Jvbmc=")
    store = LanceDBStore(
        base=Path(),
        path="az://container/x",
        collection="chunks",
        dimensions=DIMENSIONS,
        account="acc",
        endpoint="http://127.0.0.1:9/acc",
        account_key_env="TEST_KEY",
    )
    with pytest.raises(TransientError, match="refused"):
        await store.stats()
