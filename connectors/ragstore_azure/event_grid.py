"""The text of a queue message in; the events that Event Grid put into it, what was passed over, and what is wrong with it, out."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ragstore.globs import Globs
from ragstore.models import BlobId, Event, Hint
from ragstore_azure.address import BlobAddress, parse_blob_url
from ragstore_azure.properties import is_possible

Outcome = Literal["content", "content unless empty", "gone", "attributes", "blob moved", "folder", "folder moved", "nothing"]
"""What becomes of an event. `nothing`: counted only. `content unless empty`: the first of the two steps of an upload says nothing."""

OUTCOMES: Final[Mapping[tuple[str, str], Outcome]] = {
    ("BlobCreated", "PutBlob"): "content",
    ("BlobCreated", "PutBlockList"): "content",
    ("BlobCreated", "CopyBlob"): "content",  # with a hierarchical namespace sent when the copy begins: the blob's state tells
    ("BlobCreated", "CreateFile"): "content unless empty",
    ("BlobCreated", "FlushWithClose"): "content",
    ("BlobCreated", "SftpCreate"): "content unless empty",
    ("BlobCreated", "SftpCommit"): "content",
    ("BlobDeleted", "DeleteBlob"): "gone",
    ("BlobDeleted", "DeleteFile"): "gone",
    ("BlobDeleted", "SftpRemove"): "gone",
    ("BlobRenamed", "RenameFile"): "blob moved",
    ("BlobRenamed", "SftpRename"): "blob moved",
    ("DirectoryCreated", "CreateDirectory"): "nothing",  # a folder is no blob
    ("DirectoryCreated", "SftpMakeDir"): "nothing",
    ("DirectoryRenamed", "RenameDirectory"): "folder moved",
    ("DirectoryRenamed", "SftpRename"): "folder moved",
    ("DirectoryDeleted", "DeleteDirectory"): "folder",  # whatever `recursive` says: to look at an empty prefix costs one request
    ("DirectoryDeleted", "SftpRemoveDir"): "folder",
    ("BlobTierChanged", "SetBlobTier"): "attributes",
    ("AsyncOperationInitiated", "SetBlobTier"): "nothing",  # BlobTierChanged follows when it is done
    ("AsyncOperationInitiated", "CopyBlob"): "content",  # no event is promised for the copy's end
    ("BlobInventoryPolicyCompleted", ""): "nothing",
    ("LifecyclePolicyCompleted", ""): "nothing",
}
"""By type (without `Microsoft.Storage.`) and api, of https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage."""

_OF_TYPE: Final[Mapping[str, Outcome]] = {
    "BlobCreated": "content",
    "BlobDeleted": "gone",
    "BlobRenamed": "blob moved",
    "DirectoryCreated": "nothing",
    "DirectoryRenamed": "folder moved",
    "DirectoryDeleted": "folder",
    "BlobTierChanged": "attributes",
    "AsyncOperationInitiated": "content",
    "BlobInventoryPolicyCompleted": "nothing",
    "LifecyclePolicyCompleted": "nothing",
}
"""For an api that is newer than the table: an event is a hint, so looking once too often is right and looking never is not."""

_HINTS: Final[Mapping[Outcome, Hint]] = {
    "content": "content",
    "content unless empty": "content",
    "gone": "gone",
    "attributes": "attributes",
}
_PREFIX: Final = "Microsoft.Storage."
_SUBJECT: Final = re.compile(r"/blobServices/default/containers/([^/]+)/blobs/(.+)", re.DOTALL)
_ACCOUNT_OF_TOPIC: Final = re.compile(r"/providers/Microsoft\.Storage/storageAccounts/([^/]+)/?\Z", re.IGNORECASE)
_SEQUENCER: Final = re.compile(r"[0-9A-Fa-f]{1,64}")
_ETAG: Final = re.compile(r"[!-~]{1,100}")
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which events are of the source."""

    account: str
    container: str
    prefix: str = ""
    globs: Globs = field(default_factory=Globs)
    topics: frozenset[str] | None = None
    """The only topics to be listened to, in lower case; None for that of the account."""

    def admits(self, address: BlobAddress) -> bool:
        """Whether the source has this blob, if there is one."""
        return self._is_here(address) and address.path.startswith(self.prefix) and self.globs.admits(address.path)

    def reaches(self, folder: BlobAddress) -> bool:
        """Whether the source may have blobs below this folder, whose path ends with `/`."""
        overlaps = folder.path.startswith(self.prefix) or self.prefix.startswith(folder.path)
        return self._is_here(folder) and overlaps and not self.globs.prunes(folder.path.rstrip("/"))

    def is_of_account(self, name: str) -> bool:
        """Account names have no case, and neither have the ids of Azure Resource Manager that topics are."""
        return name.lower() == self.account.lower()

    def _is_here(self, address: BlobAddress) -> bool:
        of_account = address.account is None or self.is_of_account(address.account)
        return of_account and address.container == self.container and is_possible(address.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a message says."""

    events: tuple[Event, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many events say nothing of a blob of the source, by what they are."""
    faults: tuple[str, ...] = ()
    """Why the message, or events in it, cannot be understood."""


class _SkipError(Exception):
    """This event says nothing of a blob of the source."""


class _FaultError(Exception):
    """This cannot be understood; says why."""


def read_message(text: str, scope: Scope, inserted: datetime) -> Reading:
    """What a message says. Never raises, whatever the text is.

    The text is JSON, plain or in base64: one event or a list of them, each in the Event Grid schema or in that of CloudEvents 1.0.
    `inserted` is when the message came into the queue, for events whose own time cannot be read.
    """
    try:
        items = _decode(text)
    except _FaultError as fault:
        return Reading(faults=(str(fault),))
    events: list[Event] = []
    skipped: Counter[str] = Counter()
    faults: list[str] = []
    for item in items:
        try:
            events.extend(_events(_notice(item, inserted), scope))
        except _SkipError as skip:
            skipped[str(skip)] += 1
        except _FaultError as fault:
            faults.append(str(fault))
    return Reading(events=tuple(events), skipped=dict(skipped), faults=tuple(faults))


def _decode(text: str) -> list[object]:
    stripped = text.lstrip("\ufeff").strip()
    content: str | bytes = stripped
    if not stripped.startswith(("{", "[")):  # neither is a letter of base64
        try:
            content = base64.b64decode("".join(stripped.split()), validate=True)
        except ValueError:
            raise _FaultError(f"it is neither JSON nor base64: {_shown(stripped)}") from None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _FaultError(f"it is not JSON ({str(error) or type(error).__name__}): {_shown(content)}") from None
    items = value if isinstance(value, list) else [value]
    if not items:
        raise _FaultError("it is a list without events")
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """An event of either schema."""

    topic: str
    subject: str
    type: str
    moment: datetime
    data: Mapping[str, Any]

    @property
    def api(self) -> str:
        api = self.data.get("api")
        return api if isinstance(api, str) else ""

    @property
    def kind(self) -> str:
        return _ascii(f"{self.type}/{self.api}") if self.api else self.type


def _notice(item: object, inserted: datetime) -> _Notice:
    if not isinstance(item, dict):
        raise _FaultError(f"an event is an object, not {_shown(item)}")
    version = item.get("specversion")
    if version is not None and version != "1.0":
        raise _FaultError(f"CloudEvents {_shown(version)} is not known here, only 1.0; set the delivery schema of the event subscription")
    topic, type_, time = ("source", "type", "time") if version else ("topic", "eventType", "eventTime")
    for name in (topic, "subject", type_):
        if not isinstance(item.get(name), str) or not item[name]:
            raise _FaultError(f"the event's {name!r} is not a text: {_shown(item.get(name))}")
    data = item.get("data")
    return _Notice(
        topic=item[topic],
        subject=item["subject"],
        type=_ascii(item[type_].removeprefix(_PREFIX)),
        moment=_moment(item.get(time), inserted),
        data=data if isinstance(data, dict) else {},
    )


def _moment(value: object, inserted: datetime) -> datetime:
    """Late beats lost: an event whose time cannot be read happened when its message came."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else inserted
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return inserted


def _events(notice: _Notice, scope: Scope) -> list[Event]:
    _refuse_foreign(notice, scope)
    outcome = OUTCOMES.get((notice.type, notice.api)) or _OF_TYPE.get(notice.type)
    if outcome is None:
        raise _SkipError(notice.type)
    if outcome == "nothing":
        raise _SkipError(notice.kind)
    if outcome == "content unless empty" and _is_zero(notice.data.get("contentLength")):
        raise _SkipError(f"{notice.kind} (empty)")
    blob = _subject(notice)
    is_move = outcome in {"blob moved", "folder moved"}
    by_url = parse_blob_url(_text(notice.data.get("destinationUrl" if is_move else "url")))
    if by_url is not None and by_url.account is not None and not scope.is_of_account(by_url.account):
        raise _SkipError("another account")
    # Nobody documents whether subjects are escaped. Where the URL reads otherwise, both are looked at, and the state of each decides.
    reads_otherwise = by_url is not None and by_url.container == blob.container and by_url.path != blob.path
    places = [blob, by_url] if by_url is not None and reads_otherwise else [blob]
    hints = _hints(outcome, places, _source(notice) if is_move else None)
    events = [_event(notice, hint, scope, is_subject=n == 0) for n, hint in enumerate(hints) if hint.is_wanted(scope)]
    if not events:
        raise _SkipError("not admitted" if any(hint.at.container == scope.container for hint in hints) else "another container")
    return events


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hint:
    """Where to look, and why."""

    at: BlobAddress
    hint: Hint
    old: BlobAddress | None = None

    def is_wanted(self, scope: Scope) -> bool:
        return scope.reaches(self.at) if self.hint == "folder" else scope.admits(self.at)


def _hints(outcome: Outcome, places: Sequence[BlobAddress], old: BlobAddress | None) -> list[_Hint]:
    """The subject's own hint comes first. `old` is given for moves."""
    if outcome == "blob moved" and old is not None:
        return [*(_Hint(at=at, hint="content", old=old) for at in places), _Hint(at=old, hint="gone")]
    if outcome == "folder moved" and old is not None:
        below = _folder(old)
        return [*(_Hint(at=_folder(at), hint="folder", old=below) for at in places), _Hint(at=below, hint="folder")]
    if outcome == "folder":
        return [_Hint(at=_folder(at), hint="folder") for at in places]
    return [_Hint(at=at, hint=_HINTS[outcome]) for at in places]


def _event(notice: _Notice, hint: _Hint, scope: Scope, *, is_subject: bool) -> Event:
    """A sequencer orders the events of the subject's name; compared with those of another name it would mean nothing."""
    old = hint.old
    sequencer = _text(notice.data.get("sequencer"))
    etag = _text(notice.data.get("eTag") or notice.data.get("etag")).strip('"')  # with quotes in some samples, without in others
    return Event(
        blob=BlobId(account=scope.account, container=scope.container, path=hint.at.path),
        hint=hint.hint,
        moment=notice.moment,
        sequencer=sequencer if is_subject and _SEQUENCER.fullmatch(sequencer) else None,
        etag=etag if is_subject and _ETAG.fullmatch(etag) else None,
        came_from=old.path if old is not None and _Hint(at=old, hint=hint.hint).is_wanted(scope) else None,
        kind=notice.kind,
    )


def _refuse_foreign(notice: _Notice, scope: Scope) -> None:
    """What is not of this account is never acted on: whoever may write to the queue shall not steer the index of another."""
    if scope.topics is not None:
        if notice.topic.lower() not in scope.topics:
            raise _SkipError("another topic")
        return
    found = _ACCOUNT_OF_TOPIC.search(notice.topic)
    if found is None:
        raise _SkipError("another topic")
    if not scope.is_of_account(found[1]):
        raise _SkipError("another account")


def _subject(notice: _Notice) -> BlobAddress:
    found = _SUBJECT.fullmatch(notice.subject)
    if found is None:
        raise _FaultError(f"{notice.kind}: the subject names no blob: {_shown(notice.subject)}")
    return BlobAddress(account=None, container=found[1], path=found[2])


def _source(notice: _Notice) -> BlobAddress:
    url = notice.data.get("sourceUrl")
    address = parse_blob_url(_text(url))
    if address is None:
        raise _FaultError(f"{notice.kind}: 'sourceUrl' is not the URL of a blob: {_shown(url)}")
    return address


def _folder(address: BlobAddress) -> BlobAddress:
    return address if address.path.endswith("/") else replace(address, path=f"{address.path}/")


def _is_zero(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _ascii(name: str) -> str:
    """For logs and counts, whoever wrote it."""
    return name[:_SHOWN].encode("ascii", "backslashreplace").decode()


def _shown(value: object) -> str:
    """The beginning of a value, for a message; everything unprintable is escaped."""
    text = repr(value) if isinstance(value, str | bytes | int | float | None) else type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
