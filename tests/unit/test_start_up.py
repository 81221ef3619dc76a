"""A fresh interpreter in; what importing ragstore and asking for help load, counted in modules, out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_HEAVY = [
    "numpy",
    "pydantic",
    "lancedb",
    "pyarrow",
    "sqlalchemy",
    "onnxruntime",
    "tokenizers",
    "rich",
    "asyncio",
    "jinja2",
    "azure",
    "openai",
    "matplotlib",
]


def _modules(code: str) -> tuple[list[str], str]:
    """The modules that are loaded after this code, and what it printed before."""
    script = f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    printed, _, loaded = ran.stdout.rstrip("\n").rpartition("\n")
    return json.loads(loaded), printed


@pytest.mark.parametrize(
    "code",
    [
        "import ragstore",
        "from ragstore.cli import main",
        "from ragstore.cli.outcome import run; run(['--help'])",
        "import ragstore.contracts",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    loaded, _ = _modules(code)
    assert not {name.partition(".")[0] for name in loaded} & set(_HEAVY)


def test_importing_ragstore_loads_no_framework_and_few_modules() -> None:
    loaded, _ = _modules("import ragstore")
    assert "typer" not in loaded
    assert len([name for name in loaded if name.partition(".")[0] == "ragstore"]) == 1


def test_help_is_cheap() -> None:
    # Modules are counted, because seconds depend on the machine: a bare interpreter has about 60, typer brings about 100.
    loaded, printed = _modules("from ragstore.cli.outcome import run\nrun(['--help'])")
    assert "Exit codes:" in printed
    assert len(loaded) <= 220
