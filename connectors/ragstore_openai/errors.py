"""An error of the OpenAI SDK in, the ragstore error out that says what to do about it."""

from __future__ import annotations

import openai

from ragstore.embedding.retry import retry_after
from ragstore.errors import ConfigError, RagstoreError, TransientError

_WORTH_A_RETRY = frozenset({408, 409, 425, 429})
_ABOUT_THE_INPUT = frozenset({400, 413, 422})


class InputRefusedError(RagstoreError):
    """The service refuses this request for what is in it; never leaves this package."""


def translate(error: openai.OpenAIError, *, key: str, where: str) -> RagstoreError:
    """What the caller should do: retry, look for the text that is refused, or stop and change the configuration.

    `key` says where the API key comes from, `where` is the model at its address; both are for the message.
    """
    if not isinstance(error, openai.APIStatusError):
        return TransientError(f"{where} cannot be reached: {error}")
    status, reason = error.status_code, _reason(error)
    if error.code == "insufficient_quota":  # a 429 that no waiting cures: https://platform.openai.com/docs/guides/error-codes
        return ConfigError(f"the quota of the key in {key} for {where} is used up: {reason}")
    if status in _WORTH_A_RETRY or status >= 500:  # noqa: PLR2004 - a fault of the server
        return TransientError(f"{where} answered {status}: {reason}", retry_after=_wait(error))
    if status in (401, 403):
        return ConfigError(f"{where} refuses the key in {key} ({status}): {reason}")
    if status in _ABOUT_THE_INPUT:
        return InputRefusedError(f"{where} answered {status}: {reason}")
    return ConfigError(f"{where} answered {status}: {reason}. Check model and base_url")


def _reason(error: openai.APIStatusError) -> str:
    """The service's own words, on one line and not endless: some proxies answer with a page."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    return " ".join(str(message or error.message).split())[:500]


def _wait(error: openai.APIStatusError) -> float | None:
    """Seconds that the service asks for; Azure says them in milliseconds as well."""
    headers = error.response.headers
    milliseconds = retry_after(headers.get("retry-after-ms"))
    return retry_after(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000
