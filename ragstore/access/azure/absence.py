"""A condition in, the same without certainty about what only this index does not know out.

`Exists` is never unknown: `NOT Exists x` is how a condition allows what has no x. But an attribute that is not read here is missing from
every blob, and must neither be taken for absent where that would grant, nor where it would lift a denial. The same goes for what nobody
tells of a request: the network that it came from, unless the host vouches for it, and attributes of no known name.
"""

from __future__ import annotations

from typing import Final

from ragstore.access.attributes import ATTRIBUTE_PREFIX
from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    PATH,
    TAGS,
    TIME,
    And,
    Attribute,
    Condition,
    Exists,
    Known,
    Not,
    Or,
    SourceName,
)
from ragstore.access.conditions.values import fold

_READ: Final = frozenset(map(fold, (ACCOUNT, CONTAINER, PATH, CURRENT_VERSION, ENCRYPTION_SCOPE, TAGS)))
"""What is read of every blob, so that it is known to be absent where it is."""
_BLOBS: Final = TAGS.removesuffix("/tags")
_TOLD: Final = {
    "Environment": frozenset({fold(TIME)}),
    "Principal": frozenset({fold(ATTRIBUTE_PREFIX.removesuffix(":"))}),
    "Request": frozenset(map(fold, (TAGS, "subOperation", *(f"{_BLOBS}:{name}" for name in ("prefix", "snapshot", "versionId"))))),
}
"""Names, or what stands before the key of one, of what else is known to be absent where it is: a plain reading names no snapshot, and
whoever says who asks says their custom security attributes."""

OF_RESOURCES: Final[frozenset[SourceName]] = frozenset({"Resource"})
"""For what is granted: the request is a plain reading, and the principal is as its source says."""
ALL_SOURCES: Final[frozenset[SourceName]] = frozenset({"Resource", "Principal", "Request", "Environment"})
"""For what is denied: a directory that was not asked for attributes must not lift a denial."""


def uncertain(condition: Condition, *, sources: frozenset[SourceName]) -> Condition:
    """The condition with every `Exists` of an attribute of these sources that is not read of every blob unknown; else it is the same.

    Of the other sources, what is there exists, and what is not is unknown where nobody would have told of it.
    """
    match condition:
        case And(parts) | Or(parts):
            changed = tuple(uncertain(part, sources=sources) for part in parts)
            return condition if changed == parts else type(condition)(changed)
        case Not(part):
            inner = uncertain(part, sources=sources)
            return condition if inner == part else Not(inner)
        case Exists(attribute) if attribute.source in sources:
            return condition if _is_read(attribute) else Known(truth=None)
        case Exists(attribute) if not _is_told(attribute):
            return Or((condition, Known(truth=None)))
    return condition


def _is_read(attribute: Attribute) -> bool:
    if attribute.source != "Resource" or (fold(attribute.path) == fold(TAGS) and attribute.key is None and not attribute.keys):
        return False
    tagged = attribute.keys or attribute.case_sensitive or attribute.key is None
    return fold(attribute.path if tagged else f"{attribute.path}:{attribute.key}") in _READ


def _is_told(attribute: Attribute) -> bool:
    names = _TOLD.get(attribute.source)
    return names is None or not names.isdisjoint({fold(attribute.path), fold(attribute.name)})
