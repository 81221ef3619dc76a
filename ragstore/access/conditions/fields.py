"""An attribute of a blob in, how a filter over the columns of `labels.azure_columns` can speak of it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from ragstore.access.conditions.tree import ACCOUNT, CONTAINER, CURRENT_VERSION, ENCRYPTION_SCOPE, HIERARCHICAL, PATH, TAGS, Attribute
from ragstore.access.conditions.values import fold
from ragstore.access.labels import (
    HAS_SCOPE,
    HAS_TAGS,
    folded_label,
    folded_tag,
    folded_tag_key,
    label,
    label_key,
    scope_label,
    tag_keys_label,
    version_label,
)
from ragstore.access.labels import HIERARCHICAL as IS_HIERARCHICAL
from ragstore.filters import ALWAYS, NEVER, AnyOf, Filter, OneOf, ScalarColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class TextField:
    """One text, where it is there at all."""

    present: Filter
    column: ScalarColumn | None = None
    """That holds just this text: prefixes and patterns can be asked for, case-sensitive."""
    label: Callable[[str], str] | None = None
    """Of a value, where there is no column."""
    folded: Callable[[str], str]
    """The label of a value whose case does not matter."""

    def equals(self, values: Iterable[str], *, ignore_case: bool) -> Filter:
        """True of just the blobs where the attribute is there and has one of the values."""
        if ignore_case:
            return AnyOf("labels", frozenset(map(self.folded, values)))
        if self.column is not None:
            return OneOf(self.column, frozenset(values))
        return AnyOf("labels", frozenset(map(self.label, values))) if self.label else self.present


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagField:
    """True or false, each said by a filter, or not there."""

    present: Filter
    values: Mapping[bool, Filter]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysField:
    """The list of the tags' keys; not there where there are no tags."""

    present: Filter

    def any_in(self, keys: Iterable[str], *, ignore_case: bool) -> Filter:
        """True of just the blobs that have one of these tags."""
        labels = map(folded_tag_key, keys) if ignore_case else (label_key("tag", key) for key in keys)
        return AnyOf("label_keys", frozenset(labels))

    def exactly(self, sets: Iterable[Iterable[str]]) -> Filter:
        """True of just the blobs the keys of whose tags are one of these sets."""
        return AnyOf("label_keys", frozenset(map(tag_keys_label, sets)))


Field = TextField | FlagField | KeysField

_TAGS: Final = fold(TAGS)
_FIELDS: Final[Mapping[str, Field]] = MappingProxyType(
    {
        fold(ACCOUNT): TextField(present=ALWAYS, column="account", folded=partial(folded_label, "account")),
        fold(CONTAINER): TextField(present=ALWAYS, column="container", folded=partial(folded_label, "container")),
        fold(PATH): TextField(present=ALWAYS, column="path", folded=partial(folded_label, "path")),
        fold(ENCRYPTION_SCOPE): TextField(
            present=AnyOf("label_keys", frozenset({HAS_SCOPE})), label=scope_label, folded=partial(folded_label, "scope")
        ),
        fold(CURRENT_VERSION): FlagField(
            present=ALWAYS, values={current: AnyOf("labels", frozenset({version_label(current=current)})) for current in (True, False)}
        ),
        fold(HIERARCHICAL): FlagField(
            present=AnyOf("label_keys", frozenset({IS_HIERARCHICAL})),
            values={True: AnyOf("label_keys", frozenset({IS_HIERARCHICAL})), False: NEVER},
        ),
    }
)


def field_of(attribute: Attribute) -> Field | None:
    """How to ask for this attribute of the resource; None where no blob ever has it, as `resource_of` says.

    Names have no case, keys of tags have.
    """
    if fold(attribute.path) != _TAGS:
        return _FIELDS.get(fold(attribute.name))
    if attribute.keys:
        return KeysField(present=AnyOf("label_keys", frozenset({HAS_TAGS})))
    if attribute.key is None:
        return None
    key = attribute.key
    return TextField(
        present=AnyOf("label_keys", frozenset({label_key("tag", key)})), label=partial(label, "tag", key), folded=partial(folded_tag, key)
    )
