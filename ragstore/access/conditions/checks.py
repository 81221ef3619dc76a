"""A condition in, what is legal in it and probably not meant out: for `policy check`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ragstore.access.conditions.evaluation import action_matches, suboperation_matches
from ragstore.access.conditions.printing import operand_text
from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    HIERARCHICAL,
    PATH,
    TAGS,
    TIME,
    ActionMatches,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Exists,
    Known,
    Not,
    Or,
    SourceName,
    SubOperationMatches,
    Values,
)
from ragstore.access.conditions.values import OPERATORS, fold, typed

_BLOBS: Final = PATH.partition(":")[0]
_CONTAINERS: Final = CONTAINER.partition(":")[0]
_SUBOPERATION: Final = "subOperation"
_SECURITY: Final = "Microsoft.Directory/CustomSecurityAttributes/Id"
_NETWORK: Final = ("isPrivateLink", "Microsoft.Network/privateEndpoints", "Microsoft.Network/virtualNetworks/subnets")

ATTRIBUTES: Final[Mapping[SourceName, tuple[str, ...]]] = {
    "Resource": (ACCOUNT, HIERARCHICAL, ENCRYPTION_SCOPE, CONTAINER, PATH, CURRENT_VERSION),
    "Request": (f"{_BLOBS}:prefix", f"{_BLOBS}:snapshot", f"{_BLOBS}:versionId", f"{_BLOBS}:include", _SUBOPERATION),
    "Principal": (),
    "Environment": (TIME, *_NETWORK),
}
"""Those of https://learn.microsoft.com/azure/storage/blobs/storage-auth-abac-attributes besides tags and custom security attributes."""
_TAG_NAMES: Final = (f"{TAGS}:KEY<$key_case_sensitive$>", f"{TAGS}&$keys$&")
_PATTERNS: Final[Mapping[SourceName, tuple[str, ...]]] = {
    "Resource": _TAG_NAMES,
    "Request": _TAG_NAMES,
    "Principal": (f"{_SECURITY}:SET_NAME",),
    "Environment": (),
}
"""What a misspelled name may have been meant to be, besides `ATTRIBUTES`."""
_OF_TIME: Final = frozenset({"DateTimeGreaterThan", "DateTimeLessThan"})
_INSTEAD_OF_METADATA: Final = "use an index tag of the blobs, or their path"
_ALWAYS_THERE: Final = frozenset(map(fold, (ACCOUNT, CONTAINER, PATH, CURRENT_VERSION)))

ACTIONS: Final = tuple(
    f"{_BLOBS}/{action}"
    for action in (
        "read",
        "write",
        "delete",
        "add/action",
        "filter/action",
        "move/action",
        "tags/read",
        "tags/write",
        "deleteBlobVersion/action",
        "permanentDelete/action",
        "manageOwnership/action",
        "modifyPermissions/action",
        "immutableStorage/runAsSuperUser/action",
        "runAsSuperUser/action",
    )
)
"""The data actions of blobs, from the same page."""
_OLD_SUBOPERATION: Final = "Blob.Read.WithTagConditions"
SUBOPERATIONS: Final = ("Blob.List", _OLD_SUBOPERATION, "Blob.Write.WithTagHeaders", "Blob.Write.Tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, and what to do. `at` counts characters of the text from 0; None where the text was not given."""

    problem: str
    remedy: str
    at: int | None = None


def lint(condition: Condition, text: str | None = None) -> list[Finding]:
    """What to look at again, each thing once, in the order of the condition; `text` is what it was parsed from, and gives the places."""
    named = {_identity(node.attribute) for node, _ in _nodes(condition) if isinstance(node, Exists)}
    found: dict[tuple[str, str], Finding] = {}
    for node, negated in _nodes(condition):
        match node:
            case Comparison():
                pairs = [*_comparison(node), *_attributes(node), *_negation(node, named, negated=negated)]
            case Exists():
                pairs = list(_attribute(node.attribute))
            case ActionMatches() | SubOperationMatches():
                pairs = list(_pattern(node))
            case _:
                pairs = []
        for problem, remedy in pairs:
            found.setdefault((problem, remedy), Finding(problem=problem, remedy=remedy, at=_place(node, text)))
    return list(found.values())


_Pair = tuple[str, str]
"""Problem and remedy."""


def _nodes(condition: Condition, *, negated: bool = False) -> Iterator[tuple[Condition, bool]]:
    """Every leaf, and whether an odd number of NOT stands around it."""
    match condition:
        case And() | Or():
            for part in condition.parts:
                yield from _nodes(part, negated=negated)
        case Not():
            yield from _nodes(condition.part, negated=not negated)
        case Known():
            pass
        case _:
            yield condition, negated


def _comparison(node: Comparison) -> Iterator[_Pair]:
    meaning = OPERATORS[node.operator]
    several = any(isinstance(side, Values) and len(side.items) > 1 for side in (node.left, node.right))
    if node.quantifier == "ForAnyOfAnyValues" and meaning.negated and several:
        yield (
            f"ForAnyOfAnyValues:{node.operator} with several values is true of every value: each differs from at least one of them",
            f"write ForAllOfAllValues:{node.operator} for a value that is none of them",
        )
    if node.quantifier and meaning.relation == "StartsWith":
        yield (
            f"{node.operator} is not documented with a quantifier, so Azure may refuse this condition",
            f"write ForAnyOfAnyValues:{node.operator.replace('StartsWith', 'Like')} with patterns that end in *, or several comparisons",
        )
    for side in (node.left, node.right):
        for item in side.items if isinstance(side, Values) else (side,):
            if isinstance(item, Constant) and typed(meaning, item.value) is None:
                yield (
                    f"{operand_text(item)} is no {meaning.noun}, so this comparison with {node.operator} is never true, and never false",
                    f"write another value ({meaning.noun}), or another operator",
                )
        if (
            isinstance(side, Attribute)
            and fold(side.path) == fold(TIME)
            and node.operator not in {"DateTimeGreaterThan", "DateTimeLessThan"}
        ):
            yield (
                f"{TIME} is documented with DateTimeGreaterThan and DateTimeLessThan only, not with {node.operator}",
                "write one of these two",
            )


def _negation(node: Comparison, named: set[tuple[str, ...]], *, negated: bool) -> Iterator[_Pair]:
    if OPERATORS[node.operator].negated is negated:
        return
    for side in (node.left, node.right):
        if not isinstance(side, Attribute) or _identity(side) in named or fold(side.name) == fold(_SUBOPERATION):
            continue
        if side.source == "Resource" and fold(side.name) in _ALWAYS_THERE:
            continue
        shown = operand_text(side)
        yield (
            f"{'NOT' if negated else node.operator} does not grant where {shown} is missing; Azure does not document what it does there",
            f"write Exists {shown} AND ... to say so, or NOT Exists {shown} OR ... to grant where it is missing",
        )


def _attributes(node: Comparison) -> Iterator[_Pair]:
    for side in (node.left, node.right):
        if isinstance(side, Attribute):
            yield from _attribute(side)


def _attribute(attribute: Attribute) -> Iterator[_Pair]:
    shown, path = operand_text(attribute), fold(attribute.path)
    if attribute.source in {"Resource", "Request"} and path == fold(TAGS) and (attribute.keys or attribute.key is not None):
        if attribute.key is not None and not attribute.case_sensitive:
            yield f"{shown} lacks the ending of a tag's key", f"write {shown[:-1]}<$key_case_sensitive$>]"
        return
    if attribute.source == "Principal" and path == fold(_SECURITY) and attribute.key is not None:
        return
    known = {fold(name): name for name in ATTRIBUTES[attribute.source]}
    found = known.get(fold(attribute.name))
    if found is None:
        yield _unknown(attribute, shown)
    elif found == _SUBOPERATION:
        yield (
            f"{shown} is a form of the preview of 2021; ragstore answers it",
            "write SubOperationMatches{'...'}, and NOT 'Blob.List' for reads",
        )
    elif found in _NETWORK:
        yield (
            f"{shown} describes the request to Azure Storage: a retrieval has none, so it is missing and does not grant",
            "let the host application give it, or expect such blobs not to be found",
        )


def _unknown(attribute: Attribute, shown: str) -> _Pair:
    path = fold(attribute.path)
    if path == fold(f"{_CONTAINERS}/metadata"):
        return (
            f"{shown}: ragstore does not evaluate container metadata, so this never grants",
            "use an index tag of the blobs, or their path",
        )
    if path == fold(f"{_BLOBS}/metadata"):
        return f"{shown}: conditions do not evaluate blob metadata, so this never grants", _INSTEAD_OF_METADATA
    others = [source for source, names in ATTRIBUTES.items() if fold(attribute.name) in map(fold, names)]
    if others:
        return f"{shown} is no attribute of this source, so it is missing and does not grant", f"write @{others[0]}[{attribute.name}]"
    near = difflib.get_close_matches(
        attribute.name, [*ATTRIBUTES[attribute.source], f"{_SECURITY}:SET_NAME", f"{TAGS}:KEY<$key_case_sensitive$>"], n=1
    )
    remedy = f"did you mean @{attribute.source}[{near[0]}]?" if near else "see Azure's list of attributes for conditions"
    return f"{shown} is unknown, so it is missing and does not grant", remedy


def _pattern(node: ActionMatches | SubOperationMatches) -> Iterator[_Pair]:
    if isinstance(node, ActionMatches):
        if not any(action_matches(node, action) for action in ACTIONS):
            near = difflib.get_close_matches(node.pattern, ACTIONS, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "write a data action of blobs"
            yield f"ActionMatches{{{node.pattern!r}}} matches no data action of blobs, so what it guards is open", remedy
    elif not suboperation_matches(node, SUBOPERATIONS):
        yield f"SubOperationMatches{{{node.pattern!r}}} matches no sub-operation of blobs", f"write one of {', '.join(SUBOPERATIONS)}"
    elif fold(node.pattern) == fold(_OLD_SUBOPERATION):
        yield (
            f"SubOperationMatches{{{node.pattern!r}}} is deprecated; ragstore lets it bind every read",
            "write ActionMatches{'.../blobs/read'} AND NOT SubOperationMatches{'Blob.List'}",
        )


def _identity(attribute: Attribute) -> tuple[str, ...]:
    """Equal for what is looked up alike: keys of tags have case, nothing else does."""
    key = attribute.key or ""
    return (attribute.source, fold(attribute.path), key if fold(attribute.path) == fold(TAGS) else fold(key), str(attribute.keys))


def _place(node: Condition, text: str | None) -> int | None:
    """Where the text first names what the finding is about."""
    match node:
        case Comparison():
            side = next((side for side in (node.left, node.right) if isinstance(side, Attribute)), None)
            wanted = side.name if side else node.operator
        case Exists():
            wanted = node.attribute.name
        case ActionMatches() | SubOperationMatches():
            wanted = node.pattern
        case _:
            return None
    found = re.search(re.escape(wanted), text, re.IGNORECASE) if text is not None else None
    return found.start() if found else None
