"""`ragstore.toml`: every wrong key gets a name and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore import config
from ragstore.errors import ConfigError

OPEN = {"access": {"mode": "open"}}


def test_a_file_is_read_with_its_folder_as_the_base(tmp_path: Path) -> None:
    file = tmp_path / "ragstore.toml"
    file.write_text('[source]\ntype = "folder"\npath = "docs"\n[access]\nmode = "open"\n', encoding="utf-8")
    settings = config.load(file, environ={})
    assert settings.base == tmp_path
    assert settings.source[0].type == "folder"
    assert settings.source[0].options == {"path": "docs"}
    assert (settings.embedder.type, settings.store.type, settings.chunking.size) == ("minilm", "lancedb", 254)


def test_several_sources_may_be_given(tmp_path: Path) -> None:
    settings = config.from_mapping({"source": [{"type": "folder", "path": "a"}, {"type": "folder", "path": "b"}], **OPEN}, base=tmp_path)
    assert [source.options["path"] for source in settings.source] == ["a", "b"]


def test_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ragstore init"):
        config.load(tmp_path / "ragstore.toml")


@pytest.mark.parametrize("content", [b"[source", b"\xff\xfe\x00", b"a = \n"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ragstore.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(file)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"chunkin": {}}, "did you mean 'chunking'"),
        ({"chunking": {"sise": 3}}, "did you mean 'size'"),
        ({"access": {"mode": "open", "principal": "x"}}, "did you mean 'principals'"),
        ({"guard": {"delete_shares": 0.2}}, "did you mean 'delete_share'"),
        ({"zzz": 1}, "known: source, embedder"),
    ],
)
def test_an_unknown_key_names_the_nearest(data: dict[str, object], hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=hint):
        config.from_mapping({**OPEN, **data}, base=tmp_path, environ={})


def test_the_access_mode_must_be_said(tmp_path: Path) -> None:
    file = tmp_path / "ragstore.toml"
    file.write_text('[source]\ntype = "folder"\npath = "docs"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\[access\] mode must be said"):
        config.load(file, environ={})


@pytest.mark.parametrize("size", [3, "many", 0])
def test_a_value_out_of_range_is_named(size: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"chunking\.size"):
        config.from_mapping({**OPEN, "chunking": {"size": size}}, base=tmp_path, environ={})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environ = {
        "RAGSTORE_STORE__TYPE": "memory",
        "RAGSTORE_CHUNKING__SIZE": "100",
        "RAGSTORE_SOURCE__PREFIX": "x/",
        "RAGSTORE_ACCESS__MODE": "open",
        "RAGSTORE_SHARED": "/nowhere",
        "UNRELATED": "1",
    }
    settings = config.from_mapping({"source": {"type": "folder", "path": "a"}}, base=tmp_path, environ=environ)
    assert (settings.store.type, settings.chunking.size, settings.access.mode) == ("memory", 100, "open")
    assert settings.source[0].options == {"path": "a", "prefix": "x/"}


def test_the_environment_cannot_tell_two_sources_apart(tmp_path: Path) -> None:
    data = {"source": [{"type": "folder", "path": "a"}, {"type": "folder", "path": "b"}], **OPEN}
    with pytest.raises(ConfigError, match="2 sources"):
        config.from_mapping(data, base=tmp_path, environ={"RAGSTORE_SOURCE__PREFIX": "x"})


@pytest.mark.parametrize(("section", "default", "option"), [("store", "lancedb", "path"), ("embedder", "minilm", "workers")])
def test_a_section_without_a_type_has_the_default_one(section: str, default: str, option: str, tmp_path: Path) -> None:
    for settings in (
        config.from_mapping({**OPEN, section: {option: "x"}}, base=tmp_path, environ={}),
        config.from_mapping(OPEN, base=tmp_path, environ={f"RAGSTORE_{section}__{option}".upper(): "x"}),
    ):
        found = getattr(settings, section)
        assert (found.type, found.options) == (default, {option: "x"})


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"source": "docs"}, "'source' must be a section"),
        ({"source": ["docs"]}, "'source' must be a section"),
        ({"access": "open"}, "'access' must be a section"),
        ({"chunking": 3}, "'chunking' must be a section"),
        ({"embedder": "minilm"}, "'embedder' must be a section"),
        ({"source": {"path": "docs"}}, r"\[source\] needs a type"),
    ],
)
def test_a_section_of_another_shape_is_told_how_to_be_written(data: dict[str, object], hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=hint):
        config.from_mapping({**OPEN, **data}, base=tmp_path, environ={})
