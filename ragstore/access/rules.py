"""A rules file (globs over blob paths, each with the ids that may read) in, the ids of one blob out; the last matching rule decides."""

from __future__ import annotations

import hashlib
import re
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragstore.access.ids import IdList, collect_ids, shorten, split_ids
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, NEVER, Always, Filter, OneOf, StartsWith, all_of, any_of, negate, simplify
from ragstore.globs import compile_glob

NOBODY: Final = IdList()
_MOST_RULES: Final = 64
_MEANING: Final = b"any Unicode form\0"
"""Another one when the same rules would give a path other ids, so that the index is retagged."""
_FORMS: Final = ("NFC", "NFD")
_MAY_DIFFER: Final = re.compile(r"[^\x00-\x7f]|[?\[]")
"""In a glob that matches some paths in one form only."""
_ORDINARY: Final = re.compile(r"[{}\\]|^[! ]| $")
"""What has a meaning in other globs, or is easily overlooked, and stands for itself here."""
_SYNTAX: Final = 'write one rule a line, the glob in quotes: "reports/**" = ["hr-team", "alice"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Whoever is listed may read the blobs whose path the glob matches, unless a later rule matches too.

    A path that looks the same matches as well, whichever way its accents are encoded: macOS writes them apart, keyboards as one, and a rule
    that was to close a folder must not miss it for that.
    """

    glob: str
    pattern: re.Pattern[str]
    ids: IdList

    def matches(self, path: str) -> bool:
        """Whether the rule is about this path."""
        if self.pattern.fullmatch(path) is not None:
            return True
        if path.isascii() or not _MAY_DIFFER.search(self.glob):
            return False
        return any(self.pattern.fullmatch(unicodedata.normalize(form, path)) for form in _FORMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one file in the order of the file."""

    rules: tuple[Rule, ...]
    digest: str
    """Changes with every byte of the file, and with what globs mean."""

    def ids_for(self, path: str) -> IdList:
        """The ids of the last rule that matches this path of a blob within its container; no rule, nobody."""
        rule = self._deciding(path)
        return rule.ids if rule else NOBODY

    def glob_for(self, path: str) -> str | None:
        """The rule that decides over this path; None where nobody may read it for want of one."""
        rule = self._deciding(path)
        return rule.glob if rule else None

    def problems_for(self, path: str) -> list[str]:
        """What is wrong with the rule that decides over this path."""
        rule = self._deciding(path)
        return rule.ids.problems(f"rule {shorten(rule.glob)}") if rule else []

    def lint(self) -> list[str]:
        """What is wrong with the file as a whole: entries that are no ids, odd globs, and rules that a later one makes moot."""
        found = [problem for rule in self.rules for problem in rule.ids.problems(f"rule {shorten(rule.glob)}")]
        found += [
            f"rule {shorten(rule.glob)} may match other paths than it seems to: braces, a backslash, a ! at the start and blanks at the "
            "ends stand for themselves; write one rule for each alternative"
            for rule in self.rules
            if _ORDINARY.search(rule.glob)
        ]
        for index, rule in enumerate(self.rules):
            later = next((other for other in self.rules[index + 1 :] if _covers(other.glob, rule.glob)), None)
            if later is not None:
                found.append(
                    f"rule {shorten(rule.glob)} never decides, because the later {shorten(later.glob)} matches all it matches and the "
                    "last matching rule counts: move the general rule up"
                )
        return found

    def surely_granted(self, ids: frozenset[str]) -> Filter:
        """A filter over paths that is true only where one of these ids is granted, as far as the rules are whole folders or single blobs.

        Beside the stored columns it lets a new grant take effect before the index is retagged. A rule of another form that grants adds
        nothing here; one that does not grant may take away any path. Beyond `_MOST_RULES` it is `NEVER`: stores have limits.
        """
        if len(self.rules) > _MOST_RULES:
            return NEVER
        granted: Filter = NEVER
        for rule in self.rules:
            paths = _paths(rule.glob)
            if not ids.isdisjoint(rule.ids.granted):
                granted = granted if paths is None else any_of((granted, paths))
            else:
                granted = NEVER if paths is None else all_of((granted, negate(paths)))
        return simplify(granted)

    def _deciding(self, path: str) -> Rule | None:
        return next((rule for rule in reversed(self.rules) if rule.matches(path)), None)


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
    return Rules(rules=rules, digest=hashlib.blake2b(_MEANING + data, digest_size=16).hexdigest())


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
    if general == special:
        return True
    match _paths(general):
        case Always():
            return True
        case StartsWith(prefix=folder):
            return special.startswith(folder)
    return False


def _paths(glob: str) -> Filter | None:
    """The filter that is true of just the paths that the glob matches; None where the algebra cannot say it, as of accents."""
    if glob in {"**", "**/*"}:
        return ALWAYS
    folder = glob.removesuffix("**")
    if not glob.isascii() or re.search(r"[*?\[]", folder) or (folder != glob and not folder.endswith("/")):
        return None
    return StartsWith("path", folder) if folder != glob else OneOf("path", frozenset({glob}))
