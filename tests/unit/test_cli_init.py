"""`ragstore init`: what it writes loads, names every option and replaces nothing that was there."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore import config, plugins
from ragstore.cli.outcome import Exit, run
from ragstore.cli.template import render, toml_string
from ragstore.errors import ConfigError

_CONTAINER = "https://example.blob.core.windows.net/docs"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_the_file_for_a_folder_loads_and_is_open_in_so_many_words(here: Path) -> None:
    assert run(["init", "docs"]) == Exit.DONE
    settings = config.load(here / "ragstore.toml", environ={})
    assert settings.source[0].options == {"path": "./docs"}
    assert settings.access.mode == "open"
    assert "READS EVERYTHING" in (here / "ragstore.toml").read_text()


def test_the_file_for_a_container_lets_nobody_read_until_somebody_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", _CONTAINER, "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out) == {"files": ["ragstore.toml", "principals.json"], "access": "groups"}
    settings = config.load(here / "ragstore.toml", environ={})
    assert (settings.source[0].type, settings.source[0].options) == ("azure-blob", {"url": _CONTAINER})
    assert (settings.access.mode, json.loads((here / "principals.json").read_text())) == ("groups", [])


def test_without_an_argument_this_folder_is_the_source(here: Path) -> None:
    assert run(["init", "--access", "groups"]) == Exit.DONE
    settings = config.load(here / "ragstore.toml", environ={})
    assert (settings.source[0].options["path"], settings.access.mode) == (".", "groups")


def test_the_files_for_a_folder_with_groups_work_as_soon_as_somebody_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "docs" / "keys.md").write_text("Every access key is replaced after ninety days.")
    assert run(["init", "docs", "--access", "groups", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["files"] == ["ragstore.toml", "principals.json", "tags.json"]
    (here / "tags.json").write_text('{"keys.md": {"allowed": "staff"}}')
    (here / "principals.json").write_text('[{"id": "bob", "name": "Bob", "groups": ["staff"]}]')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")
        assert run(["index", "-q"]) == Exit.DONE
        capsys.readouterr()
        assert run(["search", "access key", "--as", "Bob", "--json"]) == Exit.DONE
    assert [hit["blob"] for hit in json.loads(capsys.readouterr().out)["hits"]] == ["docs/keys.md"]


def test_the_files_for_role_assignments_work_as_soon_as_somebody_is_assigned(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "docs" / "keys.md").write_text("Every access key is replaced after ninety days.")
    assert run(["init", "docs", "--access", "azure", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["files"] == ["ragstore.toml", "principals.json", "assignments.json", "tags.json"]
    ada = "aaaaaaaa-0000-0000-0000-000000000001"
    (here / "principals.json").write_text(json.dumps([{"id": ada, "name": "Ada"}]))
    reader = "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")
        assert run(["index", "-q"]) == Exit.DONE
        for assigned in ([], [{"principalId": ada, "roleDefinitionId": reader, "scope": "/"}]):
            (here / "assignments.json").write_text(json.dumps(assigned))
            capsys.readouterr()
            assert run(["search", "access key", "--as", "Ada", "--json"]) == Exit.DONE
            found.append([hit["blob"] for hit in json.loads(capsys.readouterr().out)["hits"]])
        assert run(["policy", "check"]) == Exit.DONE
    assert found == [[], ["docs/keys.md"]]


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        (["."], None),
        ([".", "--access", "groups"], ["principals.json", "access-rules.toml"]),
        ([".", "--access", "azure"], ["principals.json", "assignments.json", "roles.json", "deny.json"]),
        ([".", "--config", "docs/r.toml"], ["docs/r.toml"]),
        (["docs", "--access", "groups"], None),
    ],
)
def test_files_that_say_who_may_read_what_are_not_indexed_themselves(here: Path, arguments: list[str], left_out: list[str] | None) -> None:
    assert run(["init", *arguments]) == Exit.DONE
    file = here / "docs" / "r.toml" if "--config" in arguments else here / "ragstore.toml"
    assert config.load(file, environ={}).source[0].options.get("exclude") == left_out


def test_a_file_that_is_there_stays_unless_force_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "ragstore.toml").write_text("mine")
    assert run(["init", "docs"]) == Exit.USAGE
    assert (here / "ragstore.toml").read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert run(["init", "docs", "--force"]) == Exit.DONE
    assert config.load(here / "ragstore.toml", environ={}).source


def test_a_list_of_principals_that_is_there_stays_even_with_force(here: Path) -> None:
    (here / "principals.json").write_text('[{"id": "ada"}]')
    assert run(["init", _CONTAINER, "--force"]) == Exit.DONE
    assert "ada" in (here / "principals.json").read_text()


def test_a_file_elsewhere_finds_the_same_folder(here: Path) -> None:
    (here / "etc").mkdir()
    assert run(["init", "docs", "--config", "etc/r.toml"]) == Exit.DONE
    assert config.load(here / "etc" / "r.toml", environ={}).source[0].options["path"] == str(here / "docs")


@pytest.mark.parametrize("source", ["nowhere", "ftp://x/y"])
def test_a_source_that_is_none_writes_nothing(here: Path, source: str) -> None:
    assert run(["init", source]) == Exit.USAGE
    assert not (here / "ragstore.toml").exists()


def test_a_shared_access_signature_is_never_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", f"{_CONTAINER}?sv=2023&sig=secret"]) == Exit.USAGE
    assert not (here / "ragstore.toml").exists()
    said = capsys.readouterr().err
    assert "sas_env" in said
    assert "secret" not in said


def test_every_setting_and_every_option_of_the_default_connectors_is_named() -> None:
    azure: dict[str, str] = {"type": "azure-blob", "url": _CONTAINER}
    text = render({"type": "folder", "path": "docs"}, "open") + render(azure, "groups") + render(azure, "azure")
    expected = {
        f"{section}.{key}"
        for section, field in config.Settings.model_fields.items()
        for key in getattr(type(field.default), "model_fields", {})
        if section not in ("source", "embedder", "store")
    }
    expected |= {f"access.{key}" for key in config.AccessSettings.model_fields if key != "graph"}
    missing = {name for name in expected if f"{name.partition('.')[2]} = " not in text}
    connectors: list[tuple[plugins.Kind, str]] = [
        ("sources", "folder"), ("sources", "azure-blob"), ("embedders", "minilm"), ("stores", "lancedb")
    ]  # fmt: skip
    for kind, name in connectors:
        options = set(inspect.signature(plugins.load(kind, name)).parameters) - {"base", "collection", "dimensions"}
        missing |= {f"{name}.{option}" for option in options if option not in text}
    assert not missing


@given(st.text())
def test_any_name_of_a_folder_survives_being_written(name: str) -> None:
    import tomllib

    try:
        written = toml_string(name)
    except ConfigError:
        assert any("\ud800" <= character <= "\udfff" for character in name)
        return
    assert tomllib.loads(f"path = {written}") == {"path": name}
