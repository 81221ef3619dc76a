"""A rules file (globs over blob paths, each with the ids that may read) in, the ids of one blob out; the last matching rule decides."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access.ids import IdList, collect_ids, shorten, split_ids
from ragstore.errors import ConfigError
from ragstore.globs import compile_glob

NOBODY: Final = IdList()
_SYNTAX: Final = 'write one rule a line, the glob in quotes: "reports/**" = ["hr-team", "alice"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Whoever is listed may read the blobs whose path the glob matches, unless a later rule matches too."""

    glob: str
    pattern: re.Pattern[str]
    ids: IdList


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one file in the order of the file."""

    rules: tuple[Rule, ...]
    digest: str
    """Changes with every byte of the file."""

    def ids_for(self, path: str) -> IdList:
        """The ids of the last rule that matches this path of a blob within its container; no rule, nobody."""
        rule = self._deciding(path)
        return rule.ids if rule else NOBODY

    def problems_for(self, path: str) -> list[str]:
        """What is wrong with the rule that decides over this path."""
        rule = self._deciding(path)
        return rule.ids.problems(f"rule {shorten(rule.glob)}") if rule else []

    def lint(self) -> list[str]:
        """What is wrong with the file as a whole: entries that are no ids, and rules that a later one makes moot."""
        found = [problem for rule in self.rules for problem in rule.ids.problems(f"rule {shorten(rule.glob)}")]
        for index, rule in enumerate(self.rules):
            later = next((other for other in self.rules[index + 1 :] if _covers(other.glob, rule.glob)), None)
            if later is not None:
                found.append(
                    f"rule {shorten(rule.glob)} never decides, because the later {shorten(later.glob)} matches all it matches and the "
                    "last matching rule counts: move the general rule up"
                )
        return found

    def _deciding(self, path: str) -> Rule | None:
        return next((rule for rule in reversed(self.rules) if rule.pattern.fullmatch(path)), None)


def parse_rules(data: bytes, *, file: Path) -> Rules:
    """The rules in this TOML text, at its top level or in a table `[rules]`. Raises `ConfigError` that says what to write."""
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"access rules {str(file)!r} cannot be read: {error}; {_SYNTAX}") from error
    entries: list[tuple[str, object]] = []
    for key, value in document.items():
        if key == "rules" and isinstance(value, dict):
            entries.extend(value.items())
        else:
            entries.append((key, value))
    rules = tuple(_rule(glob, value, file) for glob, value in entries)
    return Rules(rules=rules, digest=hashlib.blake2b(data, digest_size=16).hexdigest())


def _rule(glob: str, value: object, file: Path) -> Rule:
    if isinstance(value, str):
        ids = split_ids(value, commas=True)
    elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        ids = collect_ids(value)
    elif isinstance(value, dict):
        raise ConfigError(f"access rules {str(file)!r}: {shorten(glob)} is a table; {_SYNTAX}")
    else:
        raise ConfigError(f"access rules {str(file)!r}: {shorten(glob)} must be a string of ids or a list of ids; {_SYNTAX}")
    try:
        pattern = compile_glob(glob)
    except ConfigError as error:
        raise ConfigError(f"access rules {str(file)!r}: {error}") from error
    return Rule(glob=glob, pattern=pattern, ids=ids)


def _covers(general: str, special: str) -> bool:
    """Whether every path that `special` matches is surely matched by `general`: equal, or `general` is a whole folder above it."""
    if general in {special, "**", "**/*"}:
        return True
    folder = general.removesuffix("**")
    if folder == general or not folder.endswith("/") or re.search(r"[*?\[]", folder):
        return False
    return special.startswith(folder)
