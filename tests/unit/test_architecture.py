"""What keeps the tree readable: short files, plain names, packages, extras and entry points in step."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

import pytest

from ragstore import plugins
from ragstore.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted(file for folder in ("ragstore", "connectors", "tests", "examples") for file in (ROOT / folder).rglob("*.py"))
ADAPTERS = ["ragstore_langchain", "ragstore_llama_index"]
"""They put ragstore into a framework, and not a vendor into ragstore: no entry point, no contract of ours."""
VENDORS = sorted(folder.name for folder in (ROOT / "connectors").glob("ragstore_*") if folder.is_dir())


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_at_most_400_lines_and_begins_by_saying_what_it_is(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    assert file.is_relative_to(ROOT / "tests") or text.startswith('"""')


def test_no_module_is_called_utils_helpers_or_manager() -> None:
    assert [file for file in SOURCES if re.search(r"util|helper|manager|common|misc", file.stem)] == []


def test_connectors_are_in_every_list_that_they_belong_to() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(Path(package).name for package in packages if package.startswith("connectors/")) == VENDORS
    assert sorted(set(PROJECT["tool"]["importlinter"]["root_packages"]) - {"ragstore"}) == VENDORS
    forbidden = next(c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "forbidden")
    assert sorted(forbidden["forbidden_modules"]) == VENDORS
    named = {value.split(":")[0].partition(".")[0] for group in PROJECT["project"]["entry-points"].values() for value in group.values()}
    assert sorted(name for name in named if name.startswith("ragstore_")) == [vendor for vendor in VENDORS if vendor not in ADAPTERS]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_knows_the_public_face_of_ragstore_and_no_other_part(adapter: str) -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "connectors" / adapter).rglob("*.py"))
    assert set(re.findall(r"(?:from|import) (ragstore(?:\.\w+)*)(?=\s)", text)) == {"ragstore", "ragstore.models"}


def test_the_installed_entry_points_are_those_of_the_project_file() -> None:
    for group, entries in PROJECT["project"]["entry-points"].items():
        # More may be there: a connector of somebody else's in the same environment.
        assert entries.items() <= {entry.name: entry.value for entry in entry_points(group=group)}.items(), "run: pip install -e ."


def test_every_connector_is_named_by_a_test() -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert [vendor for vendor in VENDORS if vendor not in tests] == []


def test_an_unknown_connector_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lancedb'"):
        plugins.load("stores", "lanced")


def test_an_unknown_connector_that_is_near_to_none_names_them_all() -> None:
    with pytest.raises(ConfigError, match="no store of type 'zzz'; known: azure-search, lancedb"):
        plugins.load("stores", "zzz")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_sdk\n", "the module 'no_such_sdk', see the requirements of 'ragstore-scratch'"),
        ("class Scratch:\n    def __init__(self, *, path: 'Path'): ...\n", "'Path' in the types of its constructor"),
    ],
)
def test_a_connector_of_somebody_else_says_what_it_lacks(code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch_store.py").write_text(code)
    information = tmp_path / "ragstore_scratch-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ragstore-scratch\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[ragstore.stores]\nscratch = scratch_store:Scratch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "scratch_store", raising=False)
    with pytest.raises(ConfigError, match=re.escape(message)):
        plugins.build("stores", "scratch", {})


def test_the_connectors_are_looked_for_once_and_again_where_one_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(*, group: str) -> EntryPoints:
        looked.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(plugins, "entry_points", look)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(3):
        assert plugins.load("stores", "memory").__name__ == "MemoryStore"
    assert looked == ["ragstore.stores"]
    with pytest.raises(ConfigError, match="no store of type 'installed-later'"):
        plugins.load("stores", "installed-later")
    information = tmp_path / "ragstore_later-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ragstore-later\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[ragstore.stores]\ninstalled-later = ragstore_memory:MemoryStore\n")
    assert plugins.load("stores", "installed-later").__name__ == "MemoryStore"


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'exclude'"):
        plugins.build("sources", "folder", {"path": ".", "exclud": ["x"]}, base=Path())


def test_an_option_of_the_wrong_type_is_named() -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        plugins.build("sources", "folder", {"path": ".", "max_bytes": "many"}, base=Path())


def test_the_public_names_are_those_of_the_package() -> None:
    script = "import ragstore; print(sorted(ragstore.__all__)); [getattr(ragstore, name) for name in ragstore.__all__]"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["AsyncIndex", "Index", "__version__", "open", "open_async"])
