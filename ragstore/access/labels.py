"""Access attributes in, the columns that a store can filter on out: one label per tag and per metadata entry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from ragstore.access.conditions.values import fold
from ragstore.models import AccessAttributes, AccessColumns

LabelKind = Literal["tag", "metadata"]
FoldedName = Literal["account", "container", "path", "scope"]

SEPARATOR: Final = "\x1f"
"""Outside the character set of index tags and of metadata names, so that a label cannot be read in two ways."""

HAS_TAGS: Final = "K"
"""The element of `label_keys` that says that there is a tag at all."""
HAS_SCOPE: Final = "e"
"""The element of `label_keys` that says that the blob has an encryption scope."""
HIERARCHICAL: Final = "h"
"""The element of `label_keys` that says that the blob's account has a hierarchical namespace."""

_PREFIXES: Final = {"tag": "t", "metadata": "m"}
_FOLDED: Final = {"account": "A", "container": "C", "path": "P", "scope": "E"}
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


def folded_label(name: FoldedName, value: str) -> str:
    """The element of `labels` that says that this attribute has this value, but for case."""
    return f"{_FOLDED[name]}{SEPARATOR}{_IN_VALUE.sub(_escape, fold(value))}"


def folded_tag(key: str, value: str) -> str:
    """The element of `labels` that says that the tag has this value, but for the case of the value."""
    return f"T{SEPARATOR}{_IN_KEY.sub(_escape, key)}{SEPARATOR}{_IN_VALUE.sub(_escape, fold(value))}"


def folded_tag_key(key: str) -> str:
    """The element of `label_keys` that says that there is such a tag, but for case."""
    return f"T{SEPARATOR}{_IN_KEY.sub(_escape, fold(key))}"


def tag_keys_label(keys: Iterable[str]) -> str:
    """The element of `label_keys` that says that these are all the keys of the blob's tags."""
    return SEPARATOR.join(("K", *(_IN_KEY.sub(_escape, key) for key in sorted(keys))))


def scope_label(scope: str) -> str:
    """The element of `labels` that names the encryption scope."""
    return f"e{SEPARATOR}{_IN_VALUE.sub(_escape, scope)}"


def version_label(*, current: bool) -> str:
    """The element of `labels` that says whether this is the current version. Both have one: a row without it satisfies neither."""
    return f"v{SEPARATOR}{'current' if current else 'old'}"


def azure_columns(attributes: AccessAttributes, *, media_type: str) -> AccessColumns:
    """The columns of mode `azure`: those of every mode, and labels for all that conditions ask and plain columns cannot say.

    Folded copies of tags, account, container, path and encryption scope answer `IgnoreCase` without any folding by the store; the set of
    all tag keys answers `ForAll...Values`; further labels name the encryption scope, the version, and the ACL's text.

    They are labels, and not columns of their own as in a table made for this, for two reasons. Membership in a list is what every store
    does exactly and has an index for, while case, nulls and negation differ from one to the next. And what a condition may ask of a blob
    can grow without a new schema in any store: a raised version of the columns has the index retagged.

    Index tags beside an ACL are no tags, as for `conditions.resource_of`.
    """
    if attributes.acl is not None:
        attributes = replace(attributes, tags={})
    plain = columns_of(attributes, media_type=media_type)
    labels = {
        folded_label("account", attributes.account),
        folded_label("container", attributes.container),
        folded_label("path", attributes.path),
        version_label(current=attributes.is_current_version),
    }
    keys: set[str] = set()
    if attributes.tags:
        labels |= {folded_tag(key, value) for key, value in attributes.tags.items()}
        keys |= {HAS_TAGS, tag_keys_label(attributes.tags), *map(folded_tag_key, attributes.tags)}
    if attributes.encryption_scope is not None:
        labels |= {scope_label(attributes.encryption_scope), folded_label("scope", attributes.encryption_scope)}
        keys.add(HAS_SCOPE)
    if attributes.acl is not None:
        labels.add(acl_label(attributes.acl))
        keys.add(HIERARCHICAL)
    return replace(plain, labels=tuple(sorted(labels.union(plain.labels))), label_keys=tuple(sorted(keys.union(plain.label_keys))))


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
