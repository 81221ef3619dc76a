"""The OpenAPI document in; that a server behaves as it says, for requests that fit it and for those that do not, out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import ragstore
from ragstore.service.keys import new_key
from tests.fakes.openai_server import OpenAIServer

_ROOT = Path(__file__).parents[2]
_RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]
_SCHEMATHESIS = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
_VARIABLE = "MODEL_KEY"
_SHARE = 8
"""So many examples of one property are one here, where each is a request: 12 for each operation in `ci`, 125 in `long`."""
_OF_A_MODEL = "^/v1/(chat|models|conversations)"
"""Routes that say 501 where no model answers."""
_CONFIGURATION = """
hooks = "tests.support.openapi_formats"
seed = 7
continue-on-failure = true

[warnings]
display = ["missing_auth", "unsupported_regex"]
fail-on = ["missing_auth", "unsupported_regex"]

[checks]
enabled = true
# What is far too large is refused before anybody looks whether it is valid; the document says so.
negative_data_rejection = { expected-statuses = [400, 401, 403, 404, 405, 413, 415, 422] }

[dictionaries.chunks]
values = ["CHUNK"]

[[operations]]
include-path = "/v1/chunks/{chunk_id}"
parameters = { "path.chunk_id" = { dictionary = "chunks", probability = 0.5 } }

[dictionaries.models]
values = ["small"]

[[operations]]
include-path = "/v1/models/{model}"
parameters = { "path.model" = { dictionary = "models", probability = 0.5 } }

[[operations]]
include-path = "/v1/conversations"
# What has no body has no type either.
checks = { positive_data_acceptance = { expected-statuses = [200, 201, 415] } }

[[operations]]
include-path = ["/v1/search", "/v1/prompt", "/v1/chat/completions"]
# Whether there is a reranker, a question leaves room for its sources, who speaks last, which conversations there are: no schema can say.
checks = { positive_data_acceptance = { expected-statuses = [200, 400, 404] } }

[[operations]]
include-path = "/metrics"
headers = { Authorization = "Bearer METRICS" }
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "menu.md").write_text("# Menu\n\nSoup at noon, for everybody who meets.\n")
    (tmp_path / "docs" / "board.md").write_text("# Board\n\nThe board meets on Friday.\n")
    return tmp_path


@contextmanager
def _serving(base: Path, *, with_keys: bool, base_url: str | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """A server as a process, its URL, and keys for `ada` and for metrics."""
    model = f'[ask]\nbase_url = "{base_url}"\nmodel = "small"\napi_key_env = "{_VARIABLE}"\n' if base_url else ""
    lines = ['source = {type = "folder", path = "docs"}', 'embedder = {type = "hash"}', 'access = {mode = "open"}', "[service]", "rate = 0"]
    keys = {}
    for name in ("ada", "metrics") if with_keys else ():
        keys[name], digest = new_key()
        owner = [] if name == "metrics" else [f'principal = "{name}"']
        lines += ["[[service.keys]]", f'hash = "{digest}"', *owner]
    (base / "ragstore.toml").write_text("\n".join([*lines, model]))
    with ragstore.open(base / "ragstore.toml") as index:
        index.sync()
        keys["chunk"] = index.search("board", principal=index.principal("ada"))[0].chunk
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")} | {_VARIABLE: "secret"}
    command = [*_RAGSTORE, "serve", "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, cwd=base, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads("".join(process.stdout.readline() for _ in range(3)))["url"], keys
        finally:
            process.terminate()


def _checked(base: Path, url: str, keys: dict[str, str], *options: str) -> dict[str, Any]:
    """What Schemathesis reports of all its checks."""
    text = _CONFIGURATION.replace("CHUNK", keys["chunk"]).replace("METRICS", keys.get("metrics", "none"))
    (base / "schemathesis.toml").write_text(text)
    examples = str(max(5, settings().max_examples // _SHARE))
    command = [*_SCHEMATHESIS, "run", f"{url}/openapi.json", "--max-examples", examples, "--no-color", "--request-timeout", "20"]
    command += ["--report", "json", "--report-json-path", "report.json", *options]
    if "ada" in keys:
        command += ["--header", f"Authorization: Bearer {keys['ada']}"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    ran = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    found = "\n".join(line[:500] for line in (ran.stdout + ran.stderr).splitlines())  # an example may be very long
    assert ran.returncode == 0, found
    report: dict[str, Any] = json.loads((base / "report.json").read_text())
    return report


@pytest.mark.timeout(3600)
def test_every_answer_is_one_that_the_document_names(base: Path) -> None:
    with OpenAIServer() as model, _serving(base, with_keys=True, base_url=model.base_url) as (url, keys):
        model.reply = "The board meets on Friday [1]."
        report = _checked(base, url, keys, "--phases", "coverage,fuzzing")
    assert report["operations"]["tested"] == report["operations"]["total"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_where_everybody_may_ask_the_document_wants_no_credential(base: Path) -> None:
    with _serving(base, with_keys=False) as (url, keys):
        _checked(base, url, keys, "--exclude-path-regex", _OF_A_MODEL)
