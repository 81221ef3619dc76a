"""What went wrong in; a status, and a body of RFC 9457 that quotes neither content nor configuration, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ragstore.errors import AccessError, ConfigError, PoisonError, QueryError, RagstoreError, TransientError

MEDIA_TYPE: Final = "application/problem+json"
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="ragstore"'}

_TITLES: Final = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request incomplete",
    409: "Conflict",
    413: "Request too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Request not understood",
    429: "Too many requests",
    500: "Internal error",
    501: "Not configured",
    502: "Bad gateway",
    503: "Not available",
    504: "Timed out",
}
_KINDS: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER: Final = 500
_AWAY: Final = "what is needed to answer is not available now; try again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An answer that is none."""

    status: int
    detail: str
    """Says what the caller can do; never what is indexed, who may read it, or how the service is set up."""
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Mapping[str, str], ...] = ()
    """Where the request is wrong: `{"at", "problem"}`."""
    code: str | None = None
    """A word of ours for programs, and below it the field that is meant: for clients of OpenAI's API."""
    param: str | None = None

    @property
    def error(self) -> dict[str, Any]:
        """As clients of OpenAI's API expect it."""
        kind = "server_error" if self.status >= _SERVER else _KINDS.get(self.status, "invalid_request_error")
        return {"message": self.detail, "type": kind, "param": self.param, "code": self.code}

    def body(self, request_id: str, *, openai: bool = False) -> dict[str, Any]:
        """Plain JSON values (https://www.rfc-editor.org/rfc/rfc9457); with `openai`, its `error` among them."""
        told: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **({"error": self.error} if openai else {}),
        }
        return {**told, "errors": [dict(error) for error in self.errors]} if self.errors else told


class RefusedError(Exception):
    """A request that gets a problem for an answer."""

    def __init__(self, problem: Problem, *, reason: str | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.reason = reason or type(self).__name__
        """For the log: a word or two of ours, nothing of the request's."""


def refused(status: int, detail: str, *, reason: str, headers: Mapping[str, str] | None = None) -> RefusedError:
    """An error with a problem of this status."""
    return RefusedError(Problem(status=status, detail=detail, headers=headers or {}), reason=reason)


def invalid_credential(reason: str) -> RefusedError:
    """One answer to all of them: why a credential is refused would help only whoever made it up."""
    challenge = {"WWW-Authenticate": CHALLENGE["WWW-Authenticate"] + ', error="invalid_token"'}
    return refused(401, "the credential is not valid here, or no longer; get a new one", reason=reason, headers=challenge)


def problem_of(error: RagstoreError) -> Problem:
    """What a caller is told of an error while an answer was sought.

    Of a question that is wrong, all. Whatever is wrong with access, ledger, store or set-up is the service's own affair: its text, which
    may name paths, ids and keys, is for the log.
    """
    if isinstance(error, QueryError):
        return Problem(status=400, detail=str(error))
    if isinstance(error, PoisonError):
        return Problem(status=422, detail="the model cannot read this query; ask in other words")
    seconds = error.retry_after if isinstance(error, TransientError) else None
    headers = {} if isinstance(error, (AccessError, ConfigError)) else {"Retry-After": str(max(1, round(seconds or 1)))}
    return Problem(status=503, detail=_AWAY, headers=headers)
