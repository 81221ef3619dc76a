"""A bearer token in, its claims out where the issuer signed it, for us, and for now; of all others a refusal without a word on why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt

from ragstore.config import TokenSettings
from ragstore.service.problems import invalid_credential
from ragstore.service.signing import SigningKeys

_LONGEST: Final = 16 * 1024
"""Characters. A token of Entra ID with 200 groups has about 10,000."""
_LONGEST_ID: Final = 256
_TYPES: Final = {None, "jwt", "at+jwt", "application/at+jwt"}
"""`typ` of access tokens (RFC 9068); a token for another purpose (a logout, a security event) names another."""


class Tokens:
    """Checks tokens of one issuer (RFC 7519, RFC 8725). Raises `ConfigError` for an issuer whose address is not secure."""

    def __init__(self, settings: TokenSettings, keys: SigningKeys | None = None) -> None:
        self._settings = settings
        self._audience = [settings.audience] if isinstance(settings.audience, str) else list(settings.audience)
        self._keys = keys or SigningKeys(issuer=settings.issuer, jwks_url=settings.jwks_url)

    async def claims(self, token: str) -> Mapping[str, object]:
        """What a valid token says. Raises `RefusedError` for any other, `TransientError` where the issuer's keys cannot be had."""
        algorithm, kid = self._header(token)
        key = await self._keys.key(kid, algorithm)
        if key is None:
            raise invalid_credential("token_unknown_key")
        try:
            # What the token itself says of keys (jku, jwk, x5u) is never looked at.
            found: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise invalid_credential(f"token_{type(error).__name__}") from None
        except (ValueError, TypeError, RecursionError, OverflowError):
            raise invalid_credential("token_malformed") from None
        return found

    def _header(self, token: str) -> tuple[str, str]:
        if len(token) > _LONGEST:
            raise invalid_credential("token_oversized")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise invalid_credential("token_malformed") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if algorithm not in self._settings.algorithms:
            raise invalid_credential("token_algorithm")
        if not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_ID:
            raise invalid_credential("token_no_key_id")
        if "crit" in header or (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise invalid_credential("token_type")
        return str(algorithm), kid
