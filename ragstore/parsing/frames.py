"""What parser workers and their supervisor say to each other: values in, length-prefixed JSON out, and back.

JSON and not pickle: a worker that a hostile file has taken over can send wrong text, but it cannot run anything in the parent.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from ragstore.errors import QUARANTINE_KINDS, PoisonError
from ragstore.models import Block, Document, HeadingMark, PageMark

PREFIX = struct.Struct(">I")
LARGEST = 64 * 2**20
"""Bytes of a frame; a block of the greatest size with its marks is far below."""


def pack(message: Mapping[str, Any]) -> bytes:
    """The frame of a message, which is a JSON object."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return PREFIX.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """The message in the body of a frame. Raises `ValueError`."""
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a frame holds a JSON object")  # noqa: TRY004 - what came over the pipe is wrong, not the call
    return message


def head_message(document: Document) -> dict[str, Any]:
    """A document without its blocks."""
    return {"head": [document.media_type, document.title, document.encoding]}


def block_message(block: Block) -> dict[str, Any]:
    """A block."""
    return {
        "block": block.text,
        "start": block.start,
        "pages": [[mark.start, mark.number] for mark in block.pages],
        "headings": [[mark.start, mark.level, mark.text] for mark in block.headings],
        "warnings": list(block.warnings),
    }


def error_message(error: PoisonError) -> dict[str, Any]:
    """Why a file cannot be read."""
    return {"poison": [error.kind, error.reason]}


def block_of(message: Mapping[str, Any]) -> Block:
    """The inverse of `block_message`."""
    return Block(
        text=message["block"],
        start=message["start"],
        pages=tuple(PageMark(start=start, number=number) for start, number in message["pages"]),
        headings=tuple(HeadingMark(start=start, level=level, text=text) for start, level, text in message["headings"]),
        warnings=tuple(message["warnings"]),
    )


def error_of(message: Mapping[str, Any]) -> PoisonError:
    """The inverse of `error_message`."""
    kind, reason = message["poison"]
    return PoisonError(kind if kind in QUARANTINE_KINDS else "crashed", str(reason))
