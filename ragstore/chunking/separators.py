"""A media type in, the separators of its text out, from the strongest to the weakest, as regular expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from langchain_text_splitters import Language, RecursiveCharacterTextSplitter

# A pattern that begins with a plain character is searched for several times as fast as one that begins with a choice.
PAGE: Final = r"\f"
PARAGRAPH: Final = r"\n\s*\n"
LINE: Final = r"[\n\x0b\x85\u2028\u2029](?:\s*\n)?|\r+(?!\n)"
SENTENCE: Final = r"[.!?;][\"'”’)\]]*[ \t\u00a0]+|[。！？；｡…।॥؟۔][」』”’）》]*[ \t\u3000]*"
CLAUSE: Final = r"[，、：､]"
WORD: Final = r"[^\S\r\n]+"

_GENERIC: Final = (PAGE, PARAGRAPH, LINE, SENTENCE, CLAUSE, WORD)

# Perl is a name without separators in the library; reStructuredText would be cut between a title and its underline.
_ALIASES: Final = {
    "c": Language.C,
    "c++": Language.CPP,
    "cc": Language.CPP,
    "chdr": Language.C,
    "cobol": Language.COBOL,
    "cpp": Language.CPP,
    "csharp": Language.CSHARP,
    "ecmascript": Language.JS,
    "elixir": Language.ELIXIR,
    "go": Language.GO,
    "golang": Language.GO,
    "haskell": Language.HASKELL,
    "java": Language.JAVA,
    "javascript": Language.JS,
    "kotlin": Language.KOTLIN,
    "latex": Language.LATEX,
    "lua": Language.LUA,
    "php": Language.PHP,
    "powershell": Language.POWERSHELL,
    "proto": Language.PROTO,
    "protobuf": Language.PROTO,
    "python": Language.PYTHON,
    "r": Language.R,
    "ruby": Language.RUBY,
    "rust": Language.RUST,
    "scala": Language.SCALA,
    "solidity": Language.SOL,
    "swift": Language.SWIFT,
    "tex": Language.LATEX,
    "ts": Language.TS,
    "typescript": Language.TS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Separators:
    """How to cut a text of one media type."""

    patterns: tuple[str, ...]
    """Each matches the end of a piece, strongest first."""
    structure: re.Pattern[str] | None
    """In source code: what a line must begin with to begin a class, a function or the like."""


@lru_cache(maxsize=64)
def separators(media_type: str) -> Separators:
    """The separators for text of this media type; source code has those of its language before the generic ones."""
    subtype = media_type.partition(";")[0].strip().lower().rpartition("/")[2]
    name = subtype.removeprefix("x-").removesuffix("-source").removesuffix("src")
    language = _ALIASES.get(name)
    if language is None:
        return Separators(patterns=_GENERIC, structure=None)
    starts = _line_starts(language)
    structural = tuple(rf"\n(?={start})" for start in starts)
    return Separators(patterns=(*structural, *_GENERIC), structure=re.compile("|".join(starts)) if starts else None)


def _line_starts(language: Language) -> list[str]:
    """What lines begin with where the library would cut this language: its separators without the newline, which stays above the cut.

    One that also matches nothing at all (`| ` of Haskell, read as an expression) would match everywhere, and is left out.
    """
    known = RecursiveCharacterTextSplitter.get_separators_for_language(language)
    starts = [separator.removeprefix("\n") for separator in known if separator.startswith("\n") and separator.strip()]
    return [start for start in starts if not re.match(start, "")]
