"""Words such as `rrf mmr=0.7` in, how to ask an index out."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from ragstore.errors import ConfigError
from ragstore.retrieval.quality import Quality, Switches

_PLAIN: Final = ("configured", "max-norm", "rrf", "vector", "text")
_RERANK: Final = {"rerank": True, "no-rerank": False}
_NUMBERS: Final = ("vector-weight", "near-duplicates", "mmr", "half-life-days")
_COUNTS: Final = ("per-blob", "neighbours")
WORDS: Final = (*_PLAIN, *_RERANK, *(f"{name}=X" for name in _NUMBERS), "neighbours=N", "per-blob=N", "per-blob=all")
DEFAULTS: Final = ("configured", "rrf", "vector", "text")
"""What is compared unless somebody says otherwise: as `[retrieval]` says, the other way to make one list of two, and each list alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to ask the index. What it does not say is as `[retrieval]` says."""

    name: str
    legs: Literal["both", "vector", "text"] = "both"
    per_blob: int | None = 1
    """The most hits of one blob; of several only the first counts, and the others take the room of other blobs. None: any number."""
    switches: Switches = field(default_factory=Switches)


def parse(text: str) -> Variant:
    """The variant that is meant. Raises `ConfigError` that names the words there are, for a word said twice and a value out of bounds."""
    words = text.split()
    if not words:
        raise ConfigError(f"nothing to compare is named; the words are {', '.join(WORDS)}")
    said: dict[str, Any] = {}
    for word in words:
        key, value = _read(word)
        if key in said:
            raise ConfigError(f"{text!r} says two things of one; give one of {', '.join(_PLAIN)}, and each setting once")
        said[key] = value
    plain = said.pop("plain", "configured")
    per_blob = said.pop("per_blob", 1)
    if plain in {"max-norm", "rrf"}:
        said["fusion"] = plain
    Quality(**said)  # which knows the bounds
    legs = cast("Literal['vector', 'text']", plain) if plain in {"vector", "text"} else "both"
    return Variant(name=" ".join(words), legs=legs, per_blob=per_blob, switches=cast("Switches", said))


def parse_all(texts: Iterable[str]) -> tuple[Variant, ...]:
    """All of them, each once. Raises `ConfigError` as `parse` does."""
    return tuple({variant.name: variant for variant in map(parse, texts)}.values())


def _read(word: str) -> tuple[str, str | float | bool | None]:
    """What a word sets, and to what."""
    if word in _PLAIN:
        return "plain", word
    if word in _RERANK:
        return "rerank", _RERANK[word]
    name, _, value = word.partition("=")
    key = name.replace("-", "_")
    if word == "per-blob=all":
        return key, None
    if name in _COUNTS and value.isascii() and value.isdigit() and (int(value) or name == "neighbours"):
        return key, int(value)
    if name in _NUMBERS and (number := _number(value)) is not None:
        return key, number
    if name in (*_COUNTS, *_NUMBERS):
        raise ConfigError(f"{word!r} is no value; {name} is a number{', above 0, or all' if name == 'per-blob' else ''}")
    near = difflib.get_close_matches(word, WORDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the words are {', '.join(WORDS)}"
    raise ConfigError(f"{word!r} says nothing about how to search; {hint}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
