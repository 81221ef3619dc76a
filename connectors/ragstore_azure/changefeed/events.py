"""Rows of a change feed's log in; events of the blobs of one source, and a count of all others by what they are, out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

from ragstore.contracts import Source
from ragstore.models import BlobId, Event
from ragstore_azure.changefeed.decoder import DamagedError, Row, read_map
from ragstore_azure.changefeed.outcomes import Outcome, hint_of_properties, hint_of_tier, outcome_of

_REMEMBERED: Final = 20_000
"""Blobs; a feed tells of few at a time, again and again."""
_OTHER_CONTAINER: Final = "another container"
_OTHER_PATH: Final = "a path that the source leaves out"
_EARLIER: Final = "before start"
_NO_NAME: Final = "no blob's name"
_FIELDS: Final = ("blob", "hint", "moment", "sequencer", "etag", "came_from", "kind")
"""All fields of an event."""
_SETTERS: Final = tuple(vars(Event)[name].__set__ for name in _FIELDS)


@runtime_checkable
class AdmittingSource(Source, Protocol):
    """A source that can say without a request whether a path is one of its."""

    def admits(self, path: str) -> bool:
        """Whether the source's prefix and globs admit it."""
        ...


class EventMapper:
    """Makes events of rows, for one source; `start` leaves out what is earlier."""

    def __init__(self, source: AdmittingSource, start: datetime | None) -> None:
        self.skipped: dict[str, int] = {}
        self._source = source
        self._start = start
        self._prefix = f"/blobServices/default/containers/{source.container}/blobs/".encode()
        self._blobs: dict[bytes | None, BlobId | str] = {}
        self._kinds: dict[tuple[str | None, str | None], tuple[Outcome, str]] = {}

    def take_skipped(self) -> dict[str, int]:
        """What was left out since it was asked last."""
        skipped, self.skipped = self.skipped, {}
        return skipped

    def events(self, rows: Sequence[Row], segment_begin: datetime) -> list[Event]:
        """The events in their order. `segment_begin` stands for a time that cannot be read."""
        found: list[Event] = []
        # The constructor of a frozen dataclass takes most of the time that this loop has: its slots are set one by one instead.
        new_event = Event.__new__
        set_blob, set_hint, set_moment, set_sequencer, set_etag, set_came_from, set_kind = _SETTERS
        blobs, kinds, start, fromisoformat = self._blobs, self._kinds, self._start, datetime.fromisoformat
        for subject, event_type, time, api, etag, sequencer, tier, updated, previous in rows:
            known = kinds.get((event_type, api))
            outcome, kind = known if known is not None else self._kind(event_type, api)
            if outcome == "skip":
                self._skip(kind)
                continue
            blob = blobs.get(subject) or self._blob(subject)
            if isinstance(blob, str):
                self._skip(blob)
                continue
            try:
                moment = fromisoformat(time.decode()) if time else segment_begin
            except ValueError:
                moment = segment_begin
            if moment.tzinfo is not UTC:
                moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            if start is not None and moment < start:
                self._skip(_EARLIER)
                continue
            if outcome == "properties":
                outcome = hint_of_properties(api or "", updated)
            elif outcome == "tier":
                outcome = hint_of_tier(tier, _previous_tier(previous))
            event = new_event(Event)
            set_blob(event, blob)
            set_hint(event, outcome)
            set_moment(event, moment)
            set_sequencer(event, sequencer.decode("latin-1") if sequencer else None)
            set_etag(event, etag.decode("latin-1") if etag else None)
            set_came_from(event, None)
            set_kind(event, kind)
            found.append(event)
        return found

    def _skip(self, what: str) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def _kind(self, event_type: str | None, api: str | None) -> tuple[Outcome, str]:
        name = event_type or "an event without a type"
        outcome = outcome_of(name, api or "")
        # What is left out is counted by its type; what is not is shown in logs with its api.
        kind = (outcome, f"{name}/{api}") if outcome is not None and outcome != "skip" else ("skip", name)
        self._kinds[event_type, api] = kind  # type: ignore[assignment]
        return self._kinds[event_type, api]

    def _blob(self, subject: bytes | None) -> BlobId | str:
        if len(self._blobs) >= _REMEMBERED:
            self._blobs.clear()
        self._blobs[subject] = blob = self._look_up(subject)
        return blob

    def _look_up(self, subject: bytes | None) -> BlobId | str:
        """The blob; or, for what is none of the source's, what it is."""
        if not subject or not subject.startswith(self._prefix):
            return _OTHER_CONTAINER
        try:
            # All after the first `/blobs/` that follows the container is the name, verbatim: it may hold another one.
            path = subject[len(self._prefix) :].decode("utf-8")
        except UnicodeDecodeError:
            return _NO_NAME
        if not path:
            return _NO_NAME
        if not self._source.admits(path):
            return _OTHER_PATH
        return BlobId(account=self._source.account, container=self._source.container, path=path)


def _previous_tier(previous: bytes | None) -> str | None:
    if previous is None:
        return None
    try:
        return read_map(previous).get("PreviousTier")
    except (DamagedError, IndexError):
        return None
