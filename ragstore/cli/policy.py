"""`ragstore policy check` and `policy test`: policy files in; what is wrong with them, and which of their cases fail, out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.access.checking import Checked, FileKind, Problem

_FILES: Final[Mapping[str, FileKind]] = {
    "assignments": "role assignments",
    "role_definitions": "role definitions",
    "deny_assignments": "deny assignments",
    "rules": "access rules",
    "principals": "principals",
}
"""Options of `[access]` that name a file, and what that holds."""
_GROUP_HELP: Final = "Check policy files, and test what conditions say; with --json, for programs."


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(help=_GROUP_HELP, rich_markup_mode=None, no_args_is_help=True, epilog=EXIT_CODES)
    group.command(short_help="Parse and lint conditions, assignments, principals, rules", epilog=EXIT_CODES)(check)
    group.command("test", short_help="Run a file of cases against their conditions", epilog=EXIT_CODES)(run)
    app.add_typer(group, name="policy", short_help="Check policy files, and test conditions")


@answers
def check(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A condition as text, an export of the Azure CLI, principals, access rules, or cases. Default: the configured policy.",
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Parse and lint a policy file, whatever it holds: each problem with its place and remedy.

    Ends with 2 where something in it is not in force: a condition that does not parse grants nothing. Warnings alone end with 0.
    """
    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    if file is None:
        return _check_configured(config, terminal)
    from ragstore.access.checking import check_file

    checked = check_file(_read(file), file=file)
    if as_json:
        terminal.json({"file": str(file), **checked.as_dict()})
    else:
        terminal.line(f"{plain(str(file))}: {_entries(checked)}, {_counted(checked.problems)}")
        _show(checked.problems, terminal)
    return Exit.USAGE if checked.has_errors else Exit.DONE


def _check_configured(config: Path | None, terminal: Terminal) -> Exit:
    """Each file of `[access]`, and what is wrong between them."""
    from ragstore.access import open_policy, open_principals
    from ragstore.access.checking import check_file

    settings = opening.settings_for_reading(config)
    access = settings.access.model_dump()
    policy = open_policy(access, settings.base)
    known = len(open_principals(access, settings.base).all())
    named = {str(access[option]): kind for option, kind in _FILES.items() if access[option] and access[option] != "none"}
    files = {name: check_file(_read(settings.base / name), file=settings.base / name, kind=kind) for name, kind in named.items()}
    told = [problem.problem for checked in files.values() for problem in checked.problems]
    between = [problem for problem in policy.lint() if not any(one in problem for one in told)]
    if terminal.as_json:
        checked_files = [{"file": name, **checked.as_dict()} for name, checked in files.items()]
        terminal.json({"mode": policy.mode, "principals": known, "files": checked_files, "problems": between})
    else:
        terminal.line(f"[access] mode {policy.mode!r}, {tables.counted(known, 'principal')}")
        for name, checked in files.items():
            terminal.line(f"{plain(name)}: {_entries(checked)}, {_counted(checked.problems)}")
            _show(checked.problems, terminal)
        for problem in between:
            terminal.line(f"warning: {problem}")
    return Exit.USAGE if any(checked.has_errors for checked in files.values()) else Exit.DONE


@answers
def run(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON list of cases.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Run a file of cases, as one tests code: what a condition must say of a resource, a request and a principal.

    \b
    [{"id": "own matter", "condition": "@Resource[...] StringEquals 'Halyard'",
      "resource": {"tags": {"Matter": "Halyard"}}, "decision": "allow"}]

    A case may set action, suboperations, resource, request, principal and environment (default: the reading of a blob's content), and
    expects "decision": "allow" or "deny", "kleene": "true", "false" or "unknown", or both. Ends with 5 where a case fails.
    """
    from ragstore.access.conditions.cases import run_cases

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    entries = _cases(file)
    failures = run_cases(entries)
    passed = len(entries) - len(failures)
    if as_json:
        terminal.json({"passed": passed, "failed": len(failures), "failures": [failure.as_dict() for failure in failures]})
    else:
        if failures:
            tables.show_rows([failure.as_dict() for failure in failures], ["id", "expected", "got", "reason"], terminal, "failed cases")
        terminal.line(f"{passed:,} passed, {len(failures):,} failed")
    return Exit.DIFFERENT if failures else Exit.DONE


def _cases(file: Path) -> list[Any]:
    from ragstore.access.azure.documents import load_json

    try:
        document = load_json(_read(file))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is no JSON: {error}") from error
    entries = document.get("cases") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise ConfigError(f'{str(file)!r} must hold a list of cases: [{{"condition": "...", "resource": {{...}}, "decision": "deny"}}]')
    if not entries:
        raise ConfigError(f"{str(file)!r} holds no case, so nothing would be tested")
    return entries


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error.strerror or error}") from error


def _entries(checked: Checked) -> str:
    """`2 role assignments`; the kind alone where nothing was counted: a condition, rules, and what could not be read."""
    if checked.kind in ("condition", "access rules") or (checked.has_errors and not checked.entries):
        return checked.kind
    return tables.counted(checked.entries, checked.kind.removesuffix("s"))


def _counted(problems: tuple[Problem, ...]) -> str:
    errors = sum(problem.level == "error" for problem in problems)
    if not problems:
        return "nothing to complain of"
    return f"{tables.counted(errors, 'error')}, {tables.counted(len(problems) - errors, 'warning')}"


def _show(problems: tuple[Problem, ...], terminal: Terminal) -> None:
    for problem in problems:
        place = ", ".join(part for part in (problem.where, f"character {problem.at}" if problem.at is not None else "") if part)
        remedy = f"; {problem.remedy}" if problem.remedy else ""
        terminal.line(f"  {problem.level}{f' ({place})' if place else ''}: {problem.problem}{remedy}")
