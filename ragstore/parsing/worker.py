"""The parser process: requests come in on file descriptor 0, blocks go out on a copy of descriptor 1, until the parent goes away."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from ragstore.errors import PoisonError
from ragstore.parsing import frames
from ragstore.parsing.dispatch import parse

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG in <linux/prctl.h>
_SIGKILL = 9


def main(memory: int) -> None:
    """Serve until standard input ends. `memory` is the number of bytes of address space that the process may use."""
    _die_with_parent()
    replies = os.fdopen(os.dup(1), "wb")
    _silence()
    _limit_memory(memory)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    _send(replies, {"ready": True})
    while True:
        _serve(requests.get(), replies)


def _serve(request: dict[str, Any], replies: BinaryIO) -> None:
    """Answer one request: head, blocks, end; or the reason why not, at whatever point it turns up."""
    _limit_cpu(request["seconds"])
    try:
        document = parse(Path(request["file"]), name=request["name"], declared=request["declared"], text_limit=request["text"])
        _send(replies, frames.head_message(document))
        for block in document.blocks:
            _send(replies, frames.block_message(block))
        message: dict[str, Any] = {"end": _resident()}
    except PoisonError as error:
        message = frames.error_message(error)
    except OSError as error:
        message = {"os": [error.errno or 0, str(error)]}
    _send(replies, message)


def _send(replies: BinaryIO, message: dict[str, Any]) -> None:
    replies.write(frames.pack(message))
    replies.flush()


def _listen(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Read requests in a thread of its own, so that the end of input ends the process even while it parses."""
    try:
        with os.fdopen(0, "rb", closefd=False) as stream:
            while prefix := stream.read(frames.PREFIX.size):
                requests.put(frames.unpack(stream.read(frames.PREFIX.unpack(prefix)[0])))
    finally:
        os._exit(0)


def _die_with_parent() -> None:
    """On Linux the kernel kills this process with its parent, even while native code holds the interpreter's lock."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, _SIGKILL, 0, 0, 0)


def _silence() -> None:
    """Parsers print; nothing they print may reach the terminal or the replies."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _limit_memory(memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    if sys.platform == "linux":  # macOS refuses the call or ignores it; the wall clock is the limit there
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu(seconds: float) -> None:
    """This request may use so many CPU seconds beyond what earlier ones used; then SIGXCPU ends the process."""
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _resident() -> int:
    """Bytes of memory in use now; 0 where the system does not say cheaply."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
