"""Custom security attributes as a file, a host or Microsoft Graph writes them in; flat names with lists of typed values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ragstore.access.ids import shorten
from ragstore.models import AttributeScalar

ATTRIBUTE_PREFIX: Final = "Microsoft.Directory/CustomSecurityAttributes/Id:"
"""What stands before `SET_NAME` in a condition (https://learn.microsoft.com/azure/role-based-access-control/conditions-format)."""

_ODATA: Final = "@odata."
_NO_NAME: Final = re.compile(r"[:/@\[\]]")
_FORMS: Final = f'write "SET_NAME": value, or "SET": {{"NAME": value}}, or "{ATTRIBUTE_PREFIX}SET_NAME": value'


def parse_attributes(document: Mapping[str, object]) -> dict[str, tuple[AttributeScalar, ...]]:
    """The attributes under the names `SET_NAME`, each a list of values whose types are kept.

    A key is `SET_NAME`, the full name that a condition uses, or a set whose value is an object of names, as Graph gives it; what OData says
    about types is left out (https://learn.microsoft.com/graph/custom-security-attributes-examples). Raises `ValueError` that says what to
    write: a value of another type, a name that is none, and a name that is there twice, for which case does not count.
    """
    found: dict[str, tuple[AttributeScalar, ...]] = {}
    seen: set[str] = set()
    for name, value in _flat(document):
        if not name.strip() or _NO_NAME.search(name):
            raise ValueError(f"attribute {shorten(name)} has no possible name: {_FORMS}")
        if name.lower() in seen:
            raise ValueError(f"attribute {shorten(name)} is there twice (in names, case does not count)")
        seen.add(name.lower())
        found[name] = _values(name, value)
    return found


def short_name(name: str) -> str:
    """`SET_NAME` of the full name; any other name as it stands."""
    return name[len(ATTRIBUTE_PREFIX) :] if name.lower().startswith(ATTRIBUTE_PREFIX.lower()) else name


def _flat(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        if _ODATA in key:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{key}_{name}", inner) for name, inner in value.items() if _ODATA not in name)
        else:
            yield short_name(key), value


def _values(name: str, value: object) -> tuple[AttributeScalar, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, (str, int)) for item in values):
        raise ValueError(f"attribute {shorten(name)} must be text, a whole number, true or false, or a list of those; {_FORMS}")
    return tuple(values)
