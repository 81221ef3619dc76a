"""Access attributes in, the columns that a store can filter on out: one label per tag and per metadata entry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from ragstore.models import AccessAttributes, AccessColumns

LabelKind = Literal["tag", "metadata"]

SEPARATOR: Final = "\x1f"
"""Outside the character set of index tags and of metadata names, so that a label cannot be read in two ways."""

_PREFIXES: Final = {"tag": "t", "metadata": "m"}
_IN_KEY: Final = re.compile("[\x00\x1e\x1f\ud800-\udfff]")
_IN_VALUE: Final = re.compile("[\x00\x1e\ud800-\udfff]")


def label_key(kind: LabelKind, key: str) -> str:
    """The element of `label_keys` that says that the key is present. Metadata keys are lower-cased, tag keys are not."""
    folded = key.lower() if kind == "metadata" else key
    return f"{_PREFIXES[kind]}{SEPARATOR}{_IN_KEY.sub(_escape, folded)}"


def label(kind: LabelKind, key: str, value: str) -> str:
    """The element of `labels` that says that the key has this value."""
    return f"{label_key(kind, key)}{SEPARATOR}{_IN_VALUE.sub(_escape, value)}"


def acl_label(acl: str) -> str:
    """The element of `labels` that says that the file's ACL has this text: few texts are in use, and each is decided once for a query."""
    digest = hashlib.blake2b(acl.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"a{SEPARATOR}{digest}"


def columns_of(attributes: AccessAttributes, *, media_type: str, allowed: Iterable[str] = ()) -> AccessColumns:
    """The columns of every row of a blob with these attributes; lists are sorted, so equal attributes give equal columns."""
    entries: list[tuple[LabelKind, str, str]] = [("tag", key, value) for key, value in attributes.tags.items()]
    entries += [("metadata", key, value) for key, value in fold_keys(attributes.metadata).items()]
    return AccessColumns(
        account=attributes.account,
        container=attributes.container,
        path=attributes.path,
        media_type=media_type,
        allowed=tuple(sorted(set(allowed))),
        labels=tuple(sorted({label(kind, key, value) for kind, key, value in entries})),
        label_keys=tuple(sorted({label_key(kind, key) for kind, key, _ in entries})),
    )


def fold_keys(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata under lower-case keys, as sources give it; of two keys that differ in case only the last wins, here as in a filter."""
    return {key.lower(): value for key, value in metadata.items()}


def _escape(match: re.Match[str]) -> str:
    """A character that a store cannot keep, or that has a meaning in labels, as four hex digits: two keys never give one label."""
    return f"\x1e{ord(match[0]):04x}"
