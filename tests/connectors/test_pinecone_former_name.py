"""An environment in which `pinecone-client` stands beside the SDK, or nothing at all, in; what the store says to do about it out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
import asyncio, json, os, sys
import ragstore_pinecone
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("pinecone", "httpx"))
store = ragstore_pinecone.PineconeStore(collection="c", dimensions=3, host="http://127.0.0.1:9", attempts=1)
try:
    asyncio.run(store.stats())
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), loaded]))
"""
_STUB = 'raise Exception("The official Pinecone python package has been renamed from `pinecone-client` to `pinecone`.")\n'


def _asked(environment: Path) -> tuple[str, str, list[str]]:
    """What a fresh interpreter says that finds this folder before its own packages, and what it loaded before it was asked."""
    script = f"import sys\nsys.path.insert(0, {str(environment)!r})\nimport os\nos.environ['PINECONE_API_KEY'] = 'secret'\n{_ASK}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    kind, message, loaded = json.loads(ran.stdout)
    return kind, message, loaded


def _former(environment: Path, version: str) -> None:
    information = environment / f"pinecone_client-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pinecone-client\nVersion: {version}\n")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "pinecone").mkdir()
    return tmp_path / "pinecone" / "__init__.py"


def test_the_last_release_under_the_former_name_is_found_and_both_have_to_go(tmp_path: Path, package: Path) -> None:
    package.write_text(_STUB)
    _former(tmp_path, "6.0.0")
    kind, message, _ = _asked(tmp_path)
    assert kind == "ConfigError"
    assert "pinecone-client 6.0.0 hides" in message
    assert "pip uninstall -y pinecone-client pinecone" in message
    assert "pip install 'ragstore[pinecone]'" in message


def test_an_older_release_under_the_former_name_is_found(tmp_path: Path, package: Path) -> None:
    package.write_text("class Pinecone: ...\n")
    _former(tmp_path, "5.0.1")
    kind, message, _ = _asked(tmp_path)
    assert kind == "ConfigError"
    assert "pinecone-client 5.0.1" in message
    assert "pip uninstall -y pinecone-client pinecone" in message


def test_what_an_uninstalled_pinecone_client_left_behind_is_found(tmp_path: Path, package: Path) -> None:
    package.write_text("")  # as a folder without it: imported, and empty
    kind, message, _ = _asked(tmp_path)
    assert kind == "ConfigError"
    assert "left behind" in message


def test_an_sdk_that_is_broken_otherwise_says_so_itself(tmp_path: Path, package: Path) -> None:
    package.write_text("raise RuntimeError('no such processor')\n")
    assert _asked(tmp_path)[:2] == ("RuntimeError", "no such processor")


def test_without_the_sdk_the_extra_is_named(tmp_path: Path, package: Path) -> None:
    package.write_text("raise ModuleNotFoundError('No module named pinecone', name='pinecone')\n")
    kind, message, _ = _asked(tmp_path)
    assert (kind, "pip install 'ragstore[pinecone]'" in message) == ("ConfigError", True)


def test_the_sdk_is_not_loaded_before_it_is_needed(tmp_path: Path) -> None:
    kind, message, loaded = _asked(tmp_path)
    assert loaded == []
    assert (kind, "cannot be reached" in message, "secret" in message) == ("TransientError", True, False)
