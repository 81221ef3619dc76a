"""The address of an issuer in, the public keys that sign its tokens out: fetched again when they may have changed, and not more often."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from jwt import PyJWK, PyJWTError

from ragstore.errors import ConfigError, TransientError
from ragstore.service.addresses import is_loopback

_log = logging.getLogger("ragstore.service")

Fetch = Callable[[str], Awaitable[bytes]]

_FRESH: Final = 3600.0
"""Seconds after which keys are fetched again: how long one that the issuer withdrew is taken."""
_STALE: Final = 24 * 3600.0
"""Seconds for which keys are taken while the issuer cannot be reached."""
_PAUSE: Final = 30.0
"""Seconds between two attempts, whoever asks: tokens with made-up key ids must not make us knock at the issuer's door without end."""
_LARGEST: Final = 1 << 20
_MOST_KEYS: Final = 100
_SECONDS: Final = 10.0
_LEAST_RSA_BITS: Final = 2048
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class SigningKeys:
    """The keys of one issuer by key id. Raises `ConfigError` for an address that anybody on the way could answer for."""

    def __init__(
        self, *, issuer: str, jwks_url: str | None = None, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuer = issuer
        self._url = _trusted(jwks_url) if jwks_url else None
        if not jwks_url:
            _trusted(issuer)
        self._fetch = fetch or fetch_document
        self._clock = clock
        self._keys: Mapping[str, Mapping[str, Any]] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._lock = asyncio.Lock()

    async def key(self, kid: str, algorithm: str) -> PyJWK | None:
        """The key of this id, where it may sign by this algorithm. Raises `TransientError` where there are no keys to judge by."""
        known = kid in self._keys and self._age() <= _STALE
        waits = not (known and self._lock.locked())  # who can be answered does not wait for a slow issuer
        if (self._age() > _FRESH or not known) and waits:
            await self._refresh(kid)
        if self._age() > _STALE:
            raise TransientError("the issuer's keys cannot be fetched, so no token can be checked", retry_after=_PAUSE)
        found = self._keys.get(kid)
        return _usable(found, algorithm) if found is not None else None

    def _age(self) -> float:
        return float("inf") if self._fetched is None else self._clock() - self._fetched

    async def _refresh(self, kid: str) -> None:
        async with self._lock:
            if self._age() <= _FRESH and kid in self._keys:
                return  # somebody else has, while we waited
            if self._tried is not None and self._clock() - self._tried < _PAUSE:
                return
            self._tried = self._clock()
            try:
                keys = _parsed(await self._fetch(await self._place()))
            except (TransientError, ValueError, TypeError, KeyError, RecursionError) as error:
                _log.warning("service.keys_unavailable: %s", error)  # those that are known are taken a while longer
                return
            self._keys, self._fetched = keys, self._clock()

    async def _place(self) -> str:
        """Where the keys are, by the issuer's discovery document (https://openid.net/specs/openid-connect-discovery-1_0.html)."""
        if self._url is None:
            document = json.loads(await self._fetch(self._issuer.rstrip("/") + "/.well-known/openid-configuration"))
            if not isinstance(document, dict) or document.get("issuer") != self._issuer or not isinstance(document.get("jwks_uri"), str):
                raise ValueError("the discovery document is of another issuer, or names no keys")
            try:
                self._url = _trusted(document["jwks_uri"])
            except ConfigError as error:
                raise ValueError("the discovery document names an address that is not secure") from error
        return self._url


async def fetch_document(url: str) -> bytes:
    """What is at this address, up to 1 MiB; no redirect is followed. Raises `TransientError` for everything else."""
    import httpx

    try:
        async with httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client, client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                raise TransientError(f"the issuer answers {answer.status_code}")
            content = b""
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > _LARGEST:
                    raise TransientError("the issuer's answer is too large")
            return content
    except httpx.HTTPError as error:
        raise TransientError("the issuer cannot be reached") from error


def _trusted(url: str) -> str:
    """HTTPS, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return url
    raise ConfigError(f"[service.tokens] {url!r} must begin with https://, or anybody on the way could issue tokens")


def _parsed(document: bytes) -> dict[str, Mapping[str, Any]]:
    """The public keys for signatures in a JSON Web Key Set; of what is none, nothing. Raises `ValueError` for a set without any."""
    keys = json.loads(document)["keys"]
    if not isinstance(keys, list):
        raise TypeError("the keys are no list")
    found: dict[str, Mapping[str, Any]] = {}
    for key in keys[:_MOST_KEYS]:
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("kty") in {"RSA", "EC", "OKP"} and key.get("use") != "enc":
            found[key["kid"]] = key
    if not found:
        raise ValueError("there are no keys in it")
    return found


def _usable(key: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    """The key for this algorithm; None where it is one of another kind or too weak."""
    kind = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[algorithm[:2]]
    if key["kty"] != kind or key.get("alg") not in (None, algorithm) or key.get("crv") != _CURVES.get(algorithm, key.get("crv")):
        return None
    try:
        made = PyJWK(dict(key), algorithm)
    except PyJWTError:
        return None
    return made if kind != "RSA" or getattr(made.key, "key_size", 0) >= _LEAST_RSA_BITS else None
