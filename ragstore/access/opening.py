"""The `[access]` table in, the policy that it asks for out; whatever is missing or makes no sense is an error that says what to write."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from ragstore.access.acl_table import AclTable
from ragstore.access.policy import GroupsPolicy, OpenPolicy, Policy
from ragstore.errors import ConfigError

_MODES: Final = ("open", "groups", "azure")
_GROUP_OPTIONS: Final = ("metadata_key", "tag_key", "rules")
_AZURE_OPTIONS: Final = ("assignments", "role_definitions", "deny_assignments", "accounts")
_ELSEWHERE: Final = ("audit", "max_age_hours")
"""Options that hold in every mode, and are not the policy's."""
_OPTIONS: Final = ("mode", "principals", *_GROUP_OPTIONS, *_AZURE_OPTIONS)
_ASSIGNMENTS: Final = 'assignments = "assignments.json" (az role assignment list --all --include-inherited -o json > assignments.json)'
_DENY: Final = (
    'deny_assignments = "deny.json" (az rest --method get --url '
    "'/subscriptions/ID/providers/Microsoft.Authorization/denyAssignments?api-version=2022-04-01' > deny.json), "
    'or deny_assignments = "none" if there are none'
)


def open_policy(settings: Mapping[str, object], base: Path, *, acls: Callable[[], AclTable] | None = None) -> Policy:
    """The policy that the `[access]` table asks for; paths start from the folder `base`. An option that is None counts as absent.

    `acls` gives the ACLs of the index, for mode `azure`. Raises `ConfigError` for a missing or unknown mode, an unknown option, an option
    of another mode, one that is missing, or files that cannot be read.
    """
    options = {key: value for key, value in settings.items() if value not in (None, ()) and key not in _ELSEWHERE}
    mode = _mode(options)
    for option, value in options.items():
        if option not in _OPTIONS:
            near = difflib.get_close_matches(option, _OPTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_OPTIONS)}"
            raise ConfigError(f"[access] mode = {mode!r} has no option {option!r}; {hint}")
        if option != "accounts" and not isinstance(value, (str, Path)):
            raise ConfigError(f"[access] {option} must be a string, not {type(value).__name__}")
    grouped = [option for option in _GROUP_OPTIONS if option in options]
    assigned = [option for option in _AZURE_OPTIONS if option in options]
    if mode == "azure":
        if grouped:
            raise ConfigError(f"[access] mode = 'azure' does not read {', '.join(grouped)}: set mode = 'groups' or remove the option")
        return _azure(options, base, acls)
    if assigned:
        # Whoever named role assignments did not mean to go without them.
        raise ConfigError(f"[access] mode = {mode!r} does not read {', '.join(assigned)}: set mode = 'azure' or remove the option")
    if mode == "groups":
        rules = options.get("rules")
        return GroupsPolicy(
            metadata_key=_text(options, "metadata_key"),
            tag_key=_text(options, "tag_key"),
            rules=base / str(rules) if rules else None,
        )
    if grouped:
        # Whoever wrote down who may read did not mean "everyone".
        raise ConfigError(
            f"[access] mode = 'open' lets every principal read everything, so {', '.join(grouped)} has no effect: "
            "set mode = 'groups' or remove the option"
        )
    return OpenPolicy()


def _azure(options: Mapping[str, object], base: Path, acls: Callable[[], AclTable] | None) -> Policy:
    from ragstore.access.azure.policy import AzurePolicy

    for option, remedy in (("assignments", _ASSIGNMENTS), ("deny_assignments", _DENY)):
        if not options.get(option):
            raise ConfigError(f"[access] mode = 'azure' needs {option}: write {remedy}")
    if options.get("role_definitions") == "":
        raise ConfigError("[access] role_definitions is empty: name a file, or remove the option if no custom role is assigned")
    accounts = options.get("accounts", ())
    if not isinstance(accounts, (list, tuple)) or not all(isinstance(account, str) for account in accounts):
        raise ConfigError("[access] accounts must be a list of ids of storage accounts, as `az storage account show --query id` prints one")
    denials, roles = str(options["deny_assignments"]), options.get("role_definitions")
    return AzurePolicy(
        assignments=base / str(options["assignments"]),
        role_definitions=base / str(roles) if roles else None,
        deny_assignments=None if denials == "none" else base / denials,
        accounts=accounts,
        acls=acls,
    )


def _text(options: Mapping[str, object], option: str) -> str | None:
    return str(options[option]) if option in options else None


def _mode(options: Mapping[str, object]) -> Literal["open", "groups", "azure"]:
    mode = options.get("mode")
    if mode == "open":
        return "open"
    if mode == "groups":
        return "groups"
    if mode == "azure":
        return "azure"
    if mode is None:
        raise ConfigError(
            "[access] has no mode: write mode = 'azure' for role assignments, mode = 'groups' for lists of ids, or mode = 'open' to let "
            "every principal read everything"
        )
    near = difflib.get_close_matches(str(mode), _MODES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"[access] mode = {mode!r} is unknown{hint} Known: {', '.join(_MODES)}")
