"""An `Authorization` header in, the principal that its credential proves out; nothing else of a request says who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ragstore.config import ServiceSettings
from ragstore.errors import AccessError, ConfigError
from ragstore.models import Principal
from ragstore.service.keys import ApiKeys, looks_like_key
from ragstore.service.problems import CHALLENGE, RefusedError, invalid_credential, refused

if TYPE_CHECKING:
    from ragstore.index import AsyncIndex
    from ragstore.service.tokens import Tokens

_NONE: Final = "this needs a credential: Authorization: Bearer KEY_OR_TOKEN"
_NOBODY: Final = "the credential is valid, and proves nobody who may ask here; the administrator can say why"


class Authenticator:
    """Takes API keys and tokens as the settings say; without either, in access mode `open`, everybody is the local user.

    Raises `ConfigError` where nobody could prove who asks, for a key of a principal that is unknown, and for an issuer without HTTPS.
    """

    def __init__(self, index: AsyncIndex, settings: ServiceSettings, *, tokens: Tokens | None = None) -> None:
        self._index = index
        self._keys = ApiKeys(settings.keys)
        self._settings = settings.tokens
        self._tokens = tokens
        self.anonymous = not settings.keys and settings.tokens is None
        """Whether everybody is let in."""
        if self.anonymous and index.settings.access.mode != "open":
            raise ConfigError(
                "nobody could prove who asks: make a key (ragstore serve --new-key) for [[service.keys]], or name the issuer of tokens in "
                "[service.tokens]"
            )
        for key in settings.keys:
            if key.principal is not None:
                index.principal(key.principal)
        if tokens is None and settings.tokens is not None:
            self._tokens = _checker(settings)

    async def principal(self, authorization: str | None) -> Principal:
        """Who asks. Raises `RefusedError` without a valid credential, `AccessError` and `TransientError` where it cannot be told now."""
        if self.anonymous:
            return self._index.principal()
        credential = _credential(authorization)
        if looks_like_key(credential):
            return self._of_key(credential)
        if self._tokens is None or self._settings is None:
            raise invalid_credential("unknown_credential")
        claims = await self._tokens.claims(credential)
        try:
            return await self._index.principal_of_claims(claims, groups_claim=self._settings.groups_claim, ids=self._settings.ids)
        except AccessError as error:
            if error.__cause__ is not None:
                raise  # the directory cannot be reached
            raise refused(403, _NOBODY, reason="claims") from error

    def may_read_metrics(self, authorization: str | None) -> bool:
        """Whether this is a key for metrics: how much others ask and find is not for everybody who may ask."""
        if self.anonymous:
            return True
        try:
            known, owner = self._keys.owner(_credential(authorization))
        except RefusedError:
            return False
        return known and owner is None

    def _of_key(self, key: str) -> Principal:
        known, owner = self._keys.owner(key)
        if not known:
            raise invalid_credential("unknown_key")
        if owner is None:
            raise refused(403, _NOBODY, reason="metrics_key")
        try:
            return self._index.principal(owner)
        except ConfigError as error:  # no longer in the file of principals, or there twice
            raise refused(403, _NOBODY, reason="unknown_principal") from error


def _checker(settings: ServiceSettings) -> Tokens:
    try:
        from ragstore.service.tokens import Tokens
    except ModuleNotFoundError as error:
        raise ConfigError("tokens need packages that are not installed: pip install 'ragstore[service]'") from error
    if settings.tokens is None:
        raise ConfigError("[service.tokens] names no issuer")
    return Tokens(settings.tokens)


def _credential(authorization: str | None) -> str:
    scheme, _, credential = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise refused(401, _NONE, reason="no_credential", headers=CHALLENGE)
    return credential.strip()
