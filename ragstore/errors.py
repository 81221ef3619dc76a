"""What can go wrong, grouped by what the caller should do about it; every message says what to do next."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

QUARANTINE_KINDS: Final = frozenset(
    {
        "corrupt",  # the bytes are not what the format says
        "crashed",  # the parser process died
        "embedding_refused",  # the embedder refuses this text for good
        "empty",  # no bytes, or nothing but white space
        "encrypted",  # a password is needed
        "mislabelled",  # the content is of another kind than its name and type say
        "name",  # the path cannot be stored (not valid Unicode)
        "no_text",  # readable, but without any text (a scan)
        "timeout",  # the parser took too long
        "too_deep",  # nested beyond what can be read
        "too_large",  # beyond a size limit, of the blob or of what it inflates to
        "unsupported",  # no parser for this kind of content
    }
)
"""The kinds of `PoisonError`, which are also the kinds that `ragstore failures` lists."""


class RagstoreError(Exception):
    """Base of every error that ragstore raises on purpose."""


class ConfigError(RagstoreError):
    """The set-up is wrong: stop and let a person change it (exit code 2)."""


class QueryError(ConfigError):
    """The question is wrong, and not the set-up. The message speaks of nothing else, so whoever asked may be told it."""


class IndexLockedError(ConfigError):
    """Another process is writing to this index."""


class EmbedderChangedError(ConfigError):
    """The configured embedder is not the one whose vectors the index holds; `--reembed` says yes to the cost."""


class TransientError(RagstoreError):
    """It may work later: retry. `retry_after` is the number of seconds that the other side asked for, if it did."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OutageError(RagstoreError):
    """A part that everything needs is down: the run ends here. Nothing is lost; run it again when the part is back."""


class StoreDamagedError(OutageError):
    """What the store holds cannot be read, or is gone: `verify --repair` makes it anew, and embeds nothing whose vector is cached."""


class FeedGapError(RagstoreError):
    """Events between the cursor and the oldest that the feed still holds are lost: only a listing can tell what they were.

    The message names the gap and the remedy (`ragstore index`). A worker lists the source and goes on from the feed's head.
    """


class PoisonError(RagstoreError):
    """This blob cannot be indexed however often it is tried: quarantine it. `kind` is one of `QUARANTINE_KINDS`.

    `index` is the position of the text that an embedder refuses among those it was given, where it can tell.
    """

    def __init__(self, kind: str, reason: str, index: int | None = None) -> None:
        if kind not in QUARANTINE_KINDS:
            raise ValueError(f"{kind!r} is not a quarantine kind; choose one of {sorted(QUARANTINE_KINDS)}")
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.index = index

    @override
    def __reduce__(self) -> tuple[type[PoisonError], tuple[str, str, int | None]]:
        """Keep all arguments when the error crosses a process border."""
        return (PoisonError, (self.kind, self.reason, self.index))


class AccessError(RagstoreError):
    """There is no principal to answer to, or what decides over access cannot be reached: nothing is returned."""


class GuardError(RagstoreError):
    """A guard stopped the run before it did harm (exit code 4)."""
