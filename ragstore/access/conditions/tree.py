"""The tree of a condition, as the parser makes it and as partial evaluation leaves it.

The language is that of https://learn.microsoft.com/azure/role-based-access-control/conditions-format, version 2.0. Values are frozen and
compare by what they mean, so that a condition that was printed and parsed again is equal to itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

SourceName = Literal["Environment", "Principal", "Request", "Resource"]
Quantifier = Literal["ForAnyOfAnyValues", "ForAllOfAnyValues", "ForAnyOfAllValues", "ForAllOfAllValues"]
Scalar = str | int | bool
"""What one attribute, or one element of a list, may be: dates and GUIDs are text."""
AttributeValue = Scalar | tuple[Scalar, ...]
"""A list is a tuple, and an attribute that is missing is not in its mapping."""
Truth = bool | None
"""Kleene's three values: None is unknown. Only True grants."""

_BLOBS: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
READ_ACTION: Final = f"{_BLOBS}/read"
"""Reading the content of a blob, which is what retrieval does."""
SUPERUSER_ACTION: Final = f"{_BLOBS}/runAsSuperUser/action"
READ_SUBOPERATIONS: Final = frozenset({"Blob.Read.WithTagConditions"})
"""Of a retrieval: not `Blob.List`, and the deprecated form that old conditions are guarded by, so that they still bind."""

ACCOUNT: Final = "Microsoft.Storage/storageAccounts:name"
HIERARCHICAL: Final = "Microsoft.Storage/storageAccounts:isHnsEnabled"
ENCRYPTION_SCOPE: Final = "Microsoft.Storage/storageAccounts/encryptionScopes:name"
CONTAINER: Final = "Microsoft.Storage/storageAccounts/blobServices/containers:name"
PATH: Final = f"{_BLOBS}:path"
CURRENT_VERSION: Final = f"{_BLOBS}:isCurrentVersion"
TAGS: Final = f"{_BLOBS}/tags"
TIME: Final = "UtcNow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """`@Source[path:key]`. Paths, and keys other than those of tags, have no case; both are kept as written."""

    source: SourceName
    path: str
    """What stands before the last `:`-separated key: `.../blobs:path` has the path `.../blobs` and the key `path`."""
    key: str | None = None
    """Of a tag, and of an attribute with a name of its own; None for a path alone, such as `UtcNow`."""
    case_sensitive: bool = False
    """The key was followed by `<$key_case_sensitive$>`: a tag."""
    keys: bool = False
    """`path&$keys$&`: the list of the tags' keys."""

    @property
    def name(self) -> str:
        """What stands in the brackets."""
        if self.keys:
            return f"{self.path}&$keys$&"
        return self.path if self.key is None else f"{self.path}:{self.key}{'<$key_case_sensitive$>' if self.case_sensitive else ''}"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: text in quotes, a whole number, true or false."""

    value: Scalar
    bare: bool = False
    """A GUID without quotes, which is allowed within braces."""


@dataclass(frozen=True, slots=True)
class Values:
    """A set in braces; at least one."""

    items: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An attribute that partial evaluation found to be absent."""


Operand = Attribute | Constant | Values | Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`left [quantifier:]operator right`."""

    left: Operand
    operator: str
    """As documented, `StringNotEqualsIgnoreCase` for one; always one of `values.OPERATORS`."""
    right: Operand
    quantifier: Quantifier | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """The attribute is there, even if it is empty. Never unknown."""

    attribute: Attribute


@dataclass(frozen=True, slots=True)
class ActionMatches:
    """The action of the request matches this pattern, in which `*` is any text, `/` included."""

    pattern: str


@dataclass(frozen=True, slots=True)
class SubOperationMatches:
    """One of the sub-operations of the request matches this pattern."""

    pattern: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts; at least two."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any part; at least two."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false: unknown stays unknown."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Known:
    """What partial evaluation found out already."""

    truth: Truth


Condition = Comparison | Exists | ActionMatches | SubOperationMatches | And | Or | Not | Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a condition is evaluated against. An attribute that is not in its mapping is missing.

    Mappings go from `Attribute.name` without `<$key_case_sensitive$>` to the value, but the tags of `resource` and `request`, which stand
    in mappings of their own. Names are looked up without case, tag keys with it.
    """

    action: str = READ_ACTION
    suboperations: frozenset[str] = READ_SUBOPERATIONS
    resource: Mapping[str, AttributeValue] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    """Of the resource."""
    request: Mapping[str, AttributeValue] = field(default_factory=dict)
    request_tags: Mapping[str, str] = field(default_factory=dict)
    principal: Mapping[str, AttributeValue] = field(default_factory=dict)
    environment: Mapping[str, AttributeValue] = field(default_factory=dict)
