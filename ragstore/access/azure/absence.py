"""A condition in, the same without certainty about what only this index does not know out.

`Exists` is never unknown: `NOT Exists x` is how a condition allows what has no x. But an attribute that is not read here is missing from
every blob, and must neither be taken for absent where that would grant, nor where it would lift a denial.
"""

from __future__ import annotations

from typing import Final

from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    PATH,
    TAGS,
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

OF_RESOURCES: Final[frozenset[SourceName]] = frozenset({"Resource"})
"""For what is granted: the request is a plain reading, and principal and environment are as their source says."""
ALL_SOURCES: Final[frozenset[SourceName]] = frozenset({"Resource", "Principal", "Request", "Environment"})
"""For what is denied: a directory that was not asked for attributes must not lift a denial."""


def uncertain(condition: Condition, *, sources: frozenset[SourceName]) -> Condition:
    """The condition with every `Exists` of an attribute of these sources that is not read of every blob unknown; else it is the same."""
    match condition:
        case And(parts) | Or(parts):
            changed = tuple(uncertain(part, sources=sources) for part in parts)
            return condition if changed == parts else type(condition)(changed)
        case Not(part):
            inner = uncertain(part, sources=sources)
            return condition if inner == part else Not(inner)
        case Exists(attribute) if attribute.source in sources:
            return condition if _is_read(attribute) else Known(truth=None)
    return condition


def _is_read(attribute: Attribute) -> bool:
    if attribute.source != "Resource":
        return False
    tagged = attribute.keys or attribute.case_sensitive or attribute.key is None
    return fold(attribute.path if tagged else f"{attribute.path}:{attribute.key}") in _READ
