"""README, contribution notes, help texts and examples in; whether they say what is so out: code is run, names and codes are compared."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ragstore import plugins, testing
from ragstore.access.rules import parse_rules
from ragstore.assembly import split
from ragstore.cli.app import app
from ragstore.cli.outcome import EXIT_CODES, Exit, run
from ragstore.config import from_mapping
from ragstore.retrieval.syntax import parse

if TYPE_CHECKING:
    from tests.conftest import Azurite

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", "connectors/README.md"]
COMMANDS = [
    "ask",
    "copy",
    "demo",
    "eval",
    "explain",
    "failures",
    "index",
    "init",
    "mcp",
    "plan",
    "policy",
    "prompt",
    "purge",
    "search",
    "serve",
    "status",
    "verify",
    "worker",
]


def _blocks(language: str, text: str = README) -> list[str]:
    blocks = re.findall(r"^```([a-z]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [code for name, code in blocks if name == language]


def _help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run([*arguments, "--help"]) == Exit.DONE
    return capsys.readouterr().out


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("code", _blocks("python"))
def test_the_python_of_the_readme_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "'chunks_embedded': 2" in out
    assert "docs/keys.md" in out


@pytest.mark.parametrize("block", _blocks("console"))
def test_the_commands_of_the_readme_run(block: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")
    (here / "docs").mkdir()
    (here / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        assert (program, run(arguments)) == ("ragstore", Exit.DONE), line


def test_the_readme_has_one_python_block_and_one_console_block() -> None:
    assert (len(_blocks("python")), len(_blocks("console"))) == (1, 1)


def test_the_readme_names_every_command_and_no_other() -> None:
    assert sorted(set(re.findall(r"^\| `ragstore ([a-z]+)", README, flags=re.MULTILINE))) == COMMANDS
    registered = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert sorted(registered | {str(group.name) for group in app.registered_groups}) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_that_the_readme_gives_a_command_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = re.findall(rf"^\| `ragstore {command}.*$", README, flags=re.MULTILINE)
    shown = _help([command], capsys)
    for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), option


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([command] for command in COMMANDS),
        ["failures", "retry"],
        ["failures", "drop"],
        ["failures", "list"],
        ["eval", "run"],
        ["eval", "make"],
        ["eval", "unpack"],
        ["policy", "check"],
        ["policy", "test"],
    ],
)
def test_every_help_text_has_the_exit_codes_and_fits_80_columns(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = _help(command, capsys)
    assert all(line.strip() in shown for line in EXIT_CODES.splitlines()[1:])
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("Commands:")[2], "a summary that is cut off"
    if command not in ([], ["mcp"]):  # which speaks a protocol of its own
        assert "--json" in shown


def test_the_exit_codes_of_readme_help_and_code_are_the_same() -> None:
    rows = dict(re.findall(r"^\| (\d) \| (.*) \|$", README, flags=re.MULTILINE))
    helped = dict(re.findall(r"^  (\d)  (.*)$", EXIT_CODES, flags=re.MULTILINE))
    assert {number: text.replace("`", "") for number, text in rows.items()} == helped
    assert sorted(map(int, helped)) == sorted(code for code in Exit if code < 10)


def test_what_the_map_shows_is_there() -> None:
    (tree,) = (block.partition("\nconnectors/")[0] for block in _blocks("") if block.startswith("ragstore/\n"))
    names = re.findall(r"(?:^  |\s{3,})([a-z_]+(?:\.py|/))(?=\s|$)", tree, flags=re.MULTILINE)
    assert len(names) > 15
    assert [name for name in names if not (ROOT / "ragstore" / name).exists()] == []
    shown = {name.rstrip("/") for name in names}
    present = {path.name for path in (ROOT / "ragstore").iterdir() if path.is_dir() and (path / "__init__.py").is_file()}
    assert present <= shown


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_in_documents_lead_somewhere(document: str) -> None:
    file = ROOT / document
    text = file.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (file.parent / link).exists()] == []


def test_the_connectors_guide_names_packages_and_suites_that_exist() -> None:
    text = (ROOT / "connectors" / "README.md").read_text(encoding="utf-8")
    packages = set(re.findall(r"`(ragstore_[a-z_]+)`", text))
    assert [name for name in packages if not (ROOT / "connectors" / name / "__init__.py").is_file()] == []
    for module, suite in re.findall(r"`([a-z]+)\.([A-Z]\w+Suite)`", text):
        assert hasattr(importlib.import_module(f"{testing.__name__}.{module}"), suite)


def test_the_guides_test_of_a_connector_of_ones_own_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = _blocks("python", (ROOT / "connectors" / "README.md").read_text(encoding="utf-8"))
    theirs = ModuleType("ragstore_acme")
    vars(theirs)["AcmeStore"] = object
    monkeypatch.setitem(sys.modules, "ragstore_acme", theirs)
    names: dict[str, Any] = {}
    exec(compile(code, "connectors/README.md", "exec"), names)
    assert issubclass(names["TestAcmeStore"], names["StoreSuite"])


def test_the_source_of_the_readme_names_feeds_that_exist_with_their_options() -> None:
    (block,) = (block for block in _blocks("toml") if "[source]" in block)
    settings = from_mapping({**tomllib.loads(block), "access": {"mode": "open"}}, base=ROOT, environ={})
    parts = split(settings.source[0])
    for kind, options in parts.feeds.items():
        assert options.keys() <= inspect.signature(plugins.load("feeds", kind)).parameters.keys()
    assert set(parts.feeds) == {"change-feed", "event-queue"}


def test_the_rules_of_the_readme_are_rules() -> None:
    (block,) = (block for block in _blocks("toml") if "access-rules" in block)
    rules = parse_rules(block.encode(), file=Path("access-rules.toml"))
    assert rules.ids_for("hr/public/plan.pdf").granted == {"staff", "guests"}
    assert rules.ids_for("hr/pay.csv").granted == {"hr", "ada"}
    assert rules.ids_for("menu.txt").granted == {"staff"}


def test_the_filter_of_the_readme_is_one() -> None:
    (text,) = re.findall(r"^`(tag\..*)`\.", README, flags=re.MULTILINE)
    parse(text)


def test_the_first_example_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "first_index.py"), run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert out[1:3] == ["Ada finds docs/pay.md, docs/keys.md", "Bob finds docs/keys.md"]
    assert out[3] == "after an edit: {'changed': 1, 'chunks_embedded': 1}"
    assert out[4] == "after a retag: {'retagged': 1}"
    assert "docs/pay.md" in out[6]


def test_the_example_of_role_assignments_shows_each_person_what_is_assigned(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "role_assignments.py"), run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["Ada finds docs/halyard.md", "Bob finds nothing"]
    assert "its condition is false" in out[2]
    assert "no role is assigned" in out[3]
    assert out[4:] == ["after a retag, read without any content: 1 blob", "Ada finds nothing", "Bob finds nothing"]


def test_the_example_of_langchain_gives_each_persons_model_what_that_person_may_read(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "langchain_retriever.py"), run_name="__main__")
    ada, bob = capsys.readouterr().out.splitlines()
    assert ada.startswith("Ada's model is given: [1] docs/pay.md:")
    assert bob.startswith("Bob's model is given: [1] docs/keys.md:")


def test_the_example_of_llama_index_answers_each_person_from_what_that_person_may_read(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "llama_index_retriever.py"), run_name="__main__")
    ada, bob = capsys.readouterr().out.splitlines()
    assert ada == "Ada's answer rests on docs/pay.md, and tells of three percent"
    assert bob == "Bob's answer rests on docs/keys.md, and does not tell of three percent"


def test_the_example_of_mcp_serves_each_person_what_that_person_may_read() -> None:
    command = [sys.executable, str(ROOT / "examples" / "mcp_client.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    ada, bob, foreign = ran.stdout.splitlines()
    assert (ada, bob) == ("Ada's agent finds docs/pay.md", "Bob's agent finds docs/keys.md")
    assert foreign.startswith("Bob's agent fetches what Ada's found: there is no chunk of this id that this principal may read")


@pytest.mark.azurite
def test_the_azure_example_indexes_a_container(azurite: Azurite, container: str, here: Path) -> None:
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(azurite.connection_string, container) as client:
        client.upload_blob("keys.md", "# Keys\n\nEvery access key is replaced after ninety days.\n")
    environment = {
        **os.environ,
        "RAGSTORE_EXAMPLE_URL": f"{azurite.blob_endpoint}/{container}",
        "AZURE_STORAGE_CONNECTION_STRING": azurite.connection_string,
        "RAGSTORE_EMBEDDER__TYPE": "hash",
    }
    command = [sys.executable, str(ROOT / "examples" / "azure_container.py"), "how", "often", "is", "a", "key", "replaced?"]
    ran = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "blobs: 1, added: 1" in ran.stdout
    assert f"{container}/keys.md" in ran.stdout


def test_the_azure_example_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGSTORE_EXAMPLE_URL", raising=False)
    with pytest.raises(SystemExit, match="RAGSTORE_EXAMPLE_URL"):
        runpy.run_path(str(ROOT / "examples" / "azure_container.py"), run_name="__main__")


@pytest.mark.azurite
@pytest.mark.usefixtures("azurite")  # skips where it is not installed; the example starts its own
def test_the_example_of_a_feed_tells_its_story() -> None:
    command = [sys.executable, str(ROOT / "examples" / "follow_changes.py")]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.rpartition(" (")[0] for line in ran.stdout.splitlines()] == [
        "listed at the start, 'ninety': Ada finds keys.md; Bob finds keys.md",
        "written, 'salaries': Ada finds pay.md; Bob finds nothing",
        "retagged, 'salaries': Ada finds pay.md; Bob finds pay.md",
        "edited, 'wages': Ada finds pay.md; Bob finds pay.md",
        "deleted, 'wages': Ada finds nothing; Bob finds nothing",
    ]
