"""A wheel in, a verdict out: exactly the listed packages, importable in a fresh environment without any extra."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import sys
import ragstore
assert not {"numpy", "pydantic", "typer", "sqlalchemy", "lancedb", "azure"} & set(sys.modules), "import ragstore must stay light"
from ragstore import plugins
from ragstore.errors import ConfigError
for kind in ("sources", "stores", "embedders", "rerankers"):
    for name in plugins.names(kind):
        try:
            plugins.load(kind, name)
        except ConfigError as error:  # an extra that is not installed is named
            assert "pip install 'ragstore[" in str(error), error
            print(error)
"""


def main() -> None:
    """Check the wheel named on the command line."""
    wheel = Path(sys.argv[1])
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    wanted = {Path(package).name for package in listed}
    with zipfile.ZipFile(wheel) as archive:
        found = {name.split("/")[0] for name in archive.namelist()} - {f"{wheel.name.split('-')[0]}-{wheel.name.split('-')[1]}.dist-info"}
        data = {name for name in archive.namelist() if name.endswith((".jinja", "py.typed"))}
        page = {Path(name).name for name in archive.namelist() if name.startswith("ragstore/service/web/")}
    if found != wanted:
        sys.exit(f"the wheel holds {sorted(found ^ wanted)} too much or too little")
    if not data:
        sys.exit("the wheel lacks its templates")
    if page != {"index.html", "page.css", "page.js", "shown.js"}:
        sys.exit("the wheel lacks parts of its web page")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
        subprocess.run([python, "-c", SCRIPT], check=True, cwd=folder)
        subprocess.run([python.with_name("ragstore"), "--help"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    print(f"{wheel.name}: {len(wanted)} packages")


if __name__ == "__main__":
    main()
