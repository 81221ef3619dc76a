"""A folder and a command line in; exit codes, one JSON document on stdout and everything else on stderr out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragstore import config
from ragstore.cli.outcome import Exit
from ragstore.errors import OutageError
from ragstore.ledger import Ledger
from tests.support.commands import Ragstore

if TYPE_CHECKING:
    from tests.conftest import Azurite


def test_a_folder_is_indexed_without_a_file_and_the_open_access_is_said(ragstore: Ragstore, docs: Path) -> None:
    ran = ragstore("index", "docs", "--json")
    assert ran.code == Exit.DONE
    assert (ran.json["blobs"], ran.json["added"], ran.json["chunks_embedded"]) == (2, 2, 2)
    assert 'access mode "open"' in ran.err
    assert Path(".ragstore/ledger.db").is_file()


def test_index_without_an_argument_goes_on_with_the_remembered_source(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("index", "--json")
    assert (ran.code, ran.json["unchanged"], ran.json["chunks_embedded"]) == (Exit.DONE, 2, 0)


def test_a_source_that_cannot_be_read_is_not_remembered(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    ragstore("index", "docs")
    (tmp_path / "a\udcff").mkdir()
    assert ragstore("index", "a\udcff").code == Exit.USAGE
    assert ragstore("index", "--json").json["unchanged"] == 2


def test_a_source_whose_pass_a_guard_stopped_is_remembered_for_the_answer(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    for number in range(30):
        (docs / f"{number}.txt").write_text(f"text number {number}")
    ragstore("index", "docs")
    (tmp_path / "other").mkdir()
    assert ragstore("index", "other").code == Exit.STOPPED
    assert ragstore("index", "--allow-mass-delete", "--json").json["deleted"] == 32


def test_a_query_that_is_not_unicode_is_answered(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    assert ragstore("search", "\udcff access key", "--json").json["hits"][0]["blob"] == "docs/keys.md"


def test_without_a_command_the_help_is_shown_and_it_counts_as_wrong_usage(ragstore: Ragstore) -> None:
    ran = ragstore()
    assert (ran.code, ran.err) == (Exit.USAGE, "")
    assert "failures" in ran.out


def test_another_source_than_the_remembered_one_is_named(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    ragstore("index", "docs")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("another text")
    ran = ragstore("index", "other", "--json")
    assert (ran.json["added"], ran.json["deleted"]) == (1, 2)
    assert "'docs'" in ran.err


def test_without_a_file_a_source_or_an_index_the_error_names_the_ways(ragstore: Ragstore) -> None:
    for command in (["index"], ["plan"], ["search", "x"], ["status"], ["verify"], ["failures"]):
        ran = ragstore(*command)
        assert (ran.code, ran.out) == (Exit.USAGE, "")
        assert "ragstore index FOLDER" in ran.err


@pytest.mark.parametrize("source", ["nowhere", "file.txt", "ftp://host/container", ""])
def test_a_source_that_is_none_ends_with_2_and_leaves_nothing_behind(ragstore: Ragstore, tmp_path: Path, source: str) -> None:
    (tmp_path / "file.txt").write_text("no folder")
    ran = ragstore("index", source, "--json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert not (tmp_path / ".ragstore").exists()


def test_plan_gives_the_numbers_of_index_and_changes_nothing(ragstore: Ragstore, docs: Path) -> None:
    planned = ragstore("plan", "docs", "--json").json
    assert ragstore("plan", "docs", "--json").json["chunks_embedded"] == planned["chunks_embedded"] == 2
    done = ragstore("index", "docs", "--json").json
    assert {key: planned[key] for key in ("blobs", "added", "chunks")} == {key: done[key] for key in ("blobs", "added", "chunks")}


def test_a_broken_blob_ends_with_3_and_is_listed_with_its_reason(ragstore: Ragstore, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    ran = ragstore("index", "docs", "--json")
    assert (ran.code, ran.json["quarantined"], ran.json["added"]) == (Exit.INCOMPLETE, 1, 2)
    listed = ragstore("failures", "--json")
    assert listed.code == Exit.DONE
    (failure,) = listed.json
    assert set(failure) == {"blob", "kind", "reason", "attempts", "since"}
    assert (failure["blob"], failure["kind"]) == ("docs/broken.pdf", "corrupt")
    assert ragstore("failures", "list", "--json").json == listed.json


def test_failures_are_retried_and_dropped_by_name(ragstore: Ragstore, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    ragstore("index", "docs")
    assert ragstore("failures", "retry", "docs/nope").code == Exit.USAGE
    assert ragstore("failures", "retry", "docs/broken.pdf", "--json").json == {"blobs": 1}
    assert ragstore("index").code == Exit.INCOMPLETE
    assert ragstore("failures", "--json").json[0]["attempts"] == 2
    assert ragstore("failures", "drop", "--json").json == {"blobs": 1}
    assert ragstore("failures", "--json").json == []


def test_search_gives_hits_with_place_score_and_version(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("search", "rotate access key", "-k", "1", "--json")
    (hit,) = ran.json["hits"]
    expected = {"blob", "chunk", "score", "text", "start", "end", "page", "heading", "title", "version", "etag", "stale"}
    assert set(hit) == expected
    assert (hit["blob"], hit["heading"]) == ("docs/keys.md", "Keys")
    assert hit["text"] == (docs / "keys.md").read_text()[hit["start"] : hit["end"]]


def test_search_options_narrow_and_are_checked(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    hits = ragstore("search", "key soup", "--filter", "path = 'food.md'", "--fusion", "rrf", "--per-blob", "1", "--json").json["hits"]
    assert [hit["blob"] for hit in hits] == ["docs/food.md"]
    for wrong in (["--filter", "path ="], ["-k", "0"], ["--fusion", "sum"], ["--per-blob", "0"], ["--nonsense"]):
        ran = ragstore("search", "key", *wrong, "--json")
        assert (ran.code, ran.out) == (Exit.USAGE, ""), wrong


def test_prompt_gives_messages_citations_and_tokens(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("prompt", "rotate access key", "--max-tokens", "400", "--json")
    assert set(ran.json) == {"messages", "citations", "tokens"}
    assert ran.json["tokens"] <= 400
    assert "ninety days" in ran.json["messages"][-1]["content"]
    assert "[1] docs/keys.md" in ragstore("prompt", "rotate access key").out


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("command", ["search", "prompt"])
@pytest.mark.parametrize("who", [[], ["--as", "mallory"], ["--as", ""]])
def test_in_groups_mode_a_missing_or_unknown_principal_ends_with_2_and_no_result(ragstore: Ragstore, command: str, who: list[str]) -> None:
    ragstore("index")
    ran = ragstore(command, "key", *who, "--json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")


@pytest.mark.usefixtures("groups")
def test_in_groups_mode_a_principal_sees_its_own_and_no_more(ragstore: Ragstore) -> None:
    assert ragstore("index", "--json").json["added"] == 2
    hits = ragstore("search", "rotate access key soup", "--as", "Bob", "--json").json["hits"]
    assert [hit["blob"] for hit in hits] == ["docs/food.md"]


@pytest.mark.usefixtures("groups")
def test_a_source_argument_takes_the_place_of_the_configured_one(ragstore: Ragstore, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("another text")
    assert ragstore("index", "other", "--json").json["blobs"] == 1
    assert not (tmp_path / ".ragstore" / "source.json").exists()


@pytest.mark.usefixtures("groups")
def test_the_configuration_may_be_named_before_and_after_the_command(
    ragstore: Ragstore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = str(tmp_path / "ragstore.toml")
    assert ragstore("index", "-c", file, "--json").json["added"] == 2
    assert ragstore("--config", file, "status", "--json").json["access"] == "groups"
    assert ragstore("-c", file, "failures", "list", "--json").json == []
    assert ragstore("failures", "-c", file, "--json", "list").json == []
    assert ragstore("-c", "nowhere.toml", "status").code == Exit.USAGE


def test_a_misspelt_key_is_an_error_that_names_the_right_one(ragstore: Ragstore, tmp_path: Path) -> None:
    (tmp_path / "ragstore.toml").write_text('[access]\nmode = "open"\n[chunking]\nsiez = 3\n')
    ran = ragstore("index", "--json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "'size'" in ran.err


def test_a_listing_that_lost_most_of_the_blobs_ends_with_4_until_it_is_allowed(ragstore: Ragstore, docs: Path) -> None:
    for number in range(30):
        (docs / f"{number}.txt").write_text(f"text number {number}")
    ragstore("index", "docs")
    for number in range(30):
        (docs / f"{number}.txt").unlink()
    ran = ragstore("index", "--json")
    assert (ran.code, ran.out) == (Exit.STOPPED, "")
    assert "--allow-mass-delete" in ran.err
    assert ragstore("status", "--json").json["blobs"] == 32
    assert ragstore("index", "--allow-mass-delete", "--json").json["deleted"] == 30


def test_verify_ends_with_5_where_something_differs_and_with_0_after_repair(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    assert ragstore("verify", "--json").json == {"missing": [], "stale": [], "orphaned": []}
    (docs / "food.md").unlink()
    ran = ragstore("verify", "--json")
    assert (ran.code, ran.json["orphaned"]) == (Exit.DIFFERENT, ["docs/food.md"])
    assert "verify --repair" in ragstore("verify").out
    assert ragstore("verify", "--repair").code == Exit.DONE


def test_status_has_counts_feeds_embedder_and_store(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    found = ragstore("status", "--json").json
    assert (found["blobs"], found["chunks"], found["quarantined"]) == (2, 2, 0)
    assert found["feeds"][0]["source"] == "docs"
    assert found["store"]["rows"] == 2
    assert "blobs: 2" in ragstore("status").out


def test_another_embedder_ends_with_2_until_reembed_says_yes(ragstore: Ragstore, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ragstore("index", "docs")
    monkeypatch.setenv("RAGSTORE_EMBEDDER__MODEL", "another")
    ran = ragstore("index")
    assert (ran.code, "--reembed" in ran.err) == (Exit.USAGE, True)
    assert ragstore("index", "--reembed").code == Exit.DONE


def test_a_locked_index_ends_with_2(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    ragstore("index", "docs")
    ledger = Ledger("sqlite:///.ragstore/ledger.db", base=tmp_path)
    with ledger.writing():
        ran = ragstore("index")
    ledger.close()
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "writing to the index" in ran.err


def test_a_bug_is_one_line_and_a_traceback_with_verbose(ragstore: Ragstore, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ragstore("index", "docs")

    def broken(data: object, **_context: object) -> None:
        raise RuntimeError("unexpected \x1b[31m")

    monkeypatch.setattr(config, "from_mapping", broken)
    ran = ragstore("status", "--json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.BUG, "", 1)
    assert r"\x1b[31m" in ran.err
    loud = ragstore("status", "-v")
    assert (loud.code, "Traceback" in loud.err) == (Exit.BUG, True)
    assert "Traceback" in ragstore("-v", "status").err


@pytest.mark.usefixtures("docs")
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OutageError("the store is down; run it again later"), Exit.BUG, "error: the store is down"),
        (KeyboardInterrupt(), Exit.INTERRUPTED, "stopped; what was finished is kept"),
        (PermissionError(13, "Permission denied", "/data"), Exit.BUG, "error: Permission denied (/data)"),
    ],
)
def test_what_ends_a_run_early_is_said_in_one_line(
    ragstore: Ragstore, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: Exit, said: str
) -> None:
    ragstore("index", "docs")

    def ended(data: object, **_context: object) -> None:
        raise error

    monkeypatch.setattr(config, "from_mapping", ended)
    ran = ragstore("status")
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
    assert ran.err.startswith(said)


@pytest.mark.parametrize("arguments", [["serach", "x"], ["search"], ["index", "a", "b"], ["search", "x", "-k", "many"], ["--bogus"]])
def test_a_wrong_command_line_is_one_line_with_the_help_to_ask(ragstore: Ragstore, arguments: list[str]) -> None:
    ran = ragstore(*arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert ran.err.startswith("error: ")
    assert "--help" in ran.err


def test_quiet_says_nothing_on_stderr(ragstore: Ragstore, docs: Path) -> None:
    assert ragstore("index", "docs", "-q").err == ""
    assert ragstore("-q", "index", "docs").err == ""


def test_a_command_leaves_logging_as_it_was(ragstore: Ragstore, docs: Path) -> None:
    logger = logging.getLogger("ragstore")
    before = logger.level, list(logger.handlers)
    ragstore("index", "docs", "-q")
    assert (logger.level, logger.handlers) == before


@pytest.mark.azurite
def test_a_shared_access_signature_is_used_and_not_remembered(ragstore: Ragstore, azurite: Azurite, container: str) -> None:
    from datetime import UTC, datetime, timedelta

    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    sas = generate_container_sas(
        azurite.account_name,
        container,
        azurite.account_key,
        permission=ContainerSasPermissions(read=True, list=True, tag=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    ran = ragstore("index", f"{azurite.blob_endpoint}/{container}?{sas}", "--json")
    assert (ran.code, ran.json["blobs"]) == (Exit.DONE, 0)
    signature = sas.partition("sig=")[2].partition("&")[0]
    assert signature not in Path(".ragstore/source.json").read_text() + ran.err + ran.out + ragstore("status").out
    assert "SAS_ENV" in ran.err


@pytest.mark.azurite
def test_a_url_is_indexed_with_the_credential_that_the_environment_names(
    ragstore: Ragstore, azurite: Azurite, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(azurite.connection_string, container) as client:
        client.upload_blob("keys.md", "# Keys\n\nEvery access key is replaced after ninety days.\n")
    monkeypatch.setenv("STORAGE", azurite.connection_string)
    monkeypatch.setenv("RAGSTORE_SOURCE__CONNECTION_STRING_ENV", "STORAGE")
    ran = ragstore("index", f"{azurite.blob_endpoint}/{container}", "--json")
    assert (ran.code, ran.json["added"]) == (Exit.DONE, 1)
    assert ragstore("index", "--json").json["unchanged"] == 1
    assert ragstore("search", "access key", "--json").json["hits"][0]["blob"] == f"{container}/keys.md"
    assert azurite.account_key not in Path(".ragstore/source.json").read_text()


def test_an_index_can_be_read_before_its_first_pass_has_ended(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    ragstore("index", str(docs))
    (tmp_path / ".ragstore" / "source.json").unlink()  # it is written at the end of a pass, and by a killed one never
    assert [hit["blob"] for hit in ragstore("search", "lentil soup", "-k", "1", "--json").json["hits"]] == ["docs/food.md"]
    assert ragstore("status", "--json").json["blobs"] == 2
    assert ragstore("failures").code == Exit.DONE
    for command in ("verify", "index", "plan"):
        refused = ragstore(command)
        assert refused.code == Exit.USAGE
        assert "ragstore index FOLDER" in refused.err
