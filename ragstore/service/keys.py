"""An API key in, whose it is out; kept are digests alone, from which no key can be had."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Final

from ragstore.config import KeySettings
from ragstore.errors import ConfigError

_PREFIX: Final = "rs_"
_BYTES: Final = 32
_FORM: Final = re.compile(r"rs_[A-Za-z0-9_-]{43}")
"""256 random bits, which nobody guesses: a fast digest keeps them. Words that people choose would need a slow one, and are no keys."""


def new_key() -> tuple[str, str]:
    """A key, and the digest to be kept of it."""
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    return key, digest_of(key)


def digest_of(key: str) -> str:
    """`sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def looks_like_key(credential: str) -> bool:
    """Whether it has the form of a key, and not of a token."""
    return _FORM.fullmatch(credential) is not None


class ApiKeys:
    """The keys of `[[service.keys]]`. Raises `ConfigError` for one that is there twice: nothing says whose it is."""

    def __init__(self, keys: Sequence[KeySettings]) -> None:
        self._owners = {key.hash: key.principal for key in keys}
        if len(self._owners) != len(keys):
            raise ConfigError("[[service.keys]] has one hash twice; give every principal a key of its own: ragstore serve --new-key")

    def owner(self, key: str) -> tuple[bool, str | None]:
        """Whether the key is known, and the name of its principal; None where it reads metrics only.

        It is its digest that is looked up, which nobody can steer: how long that takes tells nothing of another key.
        """
        digest = digest_of(key)
        known = looks_like_key(key) and digest in self._owners
        return known, self._owners[digest] if known else None
