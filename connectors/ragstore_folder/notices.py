"""A folder in; the places at which the operating system says that something changed, since the last time of asking, out."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from watchfiles._rust_notify import RustNotify

from ragstore.errors import ConfigError, FeedGapError

ADDED = 1
MODIFIED = 2
DELETED = 3
"""As `watchfiles.Change` numbers them."""

HELD = 100_000
"""Places that wait to be asked for, at most: an outage of hours must not fill the memory."""

_STEP_MS = 40
_ATTEMPTS = 10
_KERNEL_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
_EVENTS_PER_PLACE = 8
"""Writing one file gives about five kernel events: created, opened, modified (several in a row are one), attributes, closed."""


class UnreadableNameError(Exception):
    """A name that is not Unicode came up, of which `watchfiles` can say no more, not even once it is gone."""


@dataclass(slots=True, kw_only=True)
class Notice:
    """What was said of one place."""

    moment: datetime
    """When the first of it was heard."""
    kinds: set[int]
    """Of `ADDED`, `MODIFIED`, `DELETED`; in which order they came nobody knows."""


class Notices:
    """Listens from `start` on, on a thread of its own, until `close`.

    `rouse` is called whenever there is something to take. Raises, when started, `ConfigError` where a folder may not be read or the system
    watches no more folders.
    """

    def __init__(self, place: str, *, debounce_seconds: float, rouse: Callable[[], object]) -> None:
        self._place = place
        self._rouse = rouse
        self._lock = threading.Lock()
        self._held: dict[str, Notice] = {}
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._flood = _flood()
        self._debounce_ms = max(1, int(debounce_seconds * 1000))
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Blocks until every folder is watched."""
        try:
            notify = self._watcher()
        except PermissionError as error:
            raise ConfigError(
                f"a folder below {self._place!r} may not be read ({error}): give this user read and execute permission on it, "
                "also where it is excluded, or set poll = true"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"{self._place!r} cannot be watched ({error}): raise fs.inotify.max_user_watches with sysctl, move links away that lead "
                "out of the folder, or set poll = true"
            ) from error
        self._thread = threading.Thread(target=self._listen, args=(notify,), name="ragstore-watch", daemon=True)
        self._thread.start()

    def _watcher(self) -> RustNotify:
        """Folders that are deleted while they are being visited are no reason to give up, unless it is the root itself."""
        for _attempt in range(_ATTEMPTS):
            try:
                return RustNotify([self._place], False, False, 0, True, False)  # noqa: FBT003 - it takes no names
            except FileNotFoundError:
                if not Path(self._place).is_dir():
                    break
        raise ConfigError(f"the folder {self._place!r} is gone, or its folders come and go too fast; when it is there again, start again")

    def take(self) -> Mapping[str, Notice]:
        """What was heard since the last call, by place. Raises `FeedGapError` or `UnreadableNameError` where something was missed."""
        with self._lock:
            if self._error is not None:
                raise self._error
            held, self._held = self._held, {}
        return held

    def put_back(self, taken: Mapping[str, Notice]) -> None:
        """Undo `take`."""
        with self._lock:
            for place, notice in taken.items():
                later = self._held.get(place)
                self._held[place] = Notice(moment=notice.moment, kinds=notice.kinds | (later.kinds if later else set()))

    def close(self) -> None:
        """Stop listening; blocks for a moment."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _listen(self, notify: RustNotify) -> None:
        """Asks without a timeout: when its time is up, `watch` throws away what came in that very moment."""
        try:
            while self._error is None:
                heard = notify.watch(self._debounce_ms, _STEP_MS, 0, self._stop)
                if isinstance(heard, str):
                    return
                self._keep(heard)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread: whoever reads next is told
            if "Unable to decode path" in str(error):
                self._fail(UnreadableNameError(str(error)))
            else:
                self._fail(self._gap(str(error)))
        finally:
            notify.close()

    def _keep(self, heard: set[tuple[int, str]]) -> None:
        now = datetime.now(UTC)
        with self._lock:
            for kind, place in heard:
                notice = self._held.get(place)
                if notice is None:
                    self._held[place] = Notice(moment=now, kinds={kind})
                else:
                    notice.kinds.add(kind)
            full = len(self._held) > HELD
        if len(heard) >= self._flood:
            self._fail(self._gap(f"{len(heard)} changes came at once, and the kernel's queue may have run over"))
        elif full:
            self._fail(self._gap(f"more than {HELD} changes waited to be read"))
        else:
            self._call()

    def _gap(self, reason: str) -> FeedGapError:
        return FeedGapError(f"changes of {self._place!r} were missed: {reason}; run `ragstore index`, a worker lists the folder by itself")

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._error = error
            self._held = {}
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of whoever reads was closed
            self._rouse()


def _flood() -> int:
    """So many places at once that the kernel's queue may have run over, of which `watchfiles` does not tell."""
    try:
        return max(256, int(_KERNEL_QUEUE.read_text(encoding="ascii")) // _EVENTS_PER_PLACE) if sys.platform == "linux" else 10_000
    except (OSError, ValueError):
        return 2048
