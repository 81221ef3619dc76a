"""Hypothesis strategies for access by conditions: trees, blobs, principals and contexts that keep meeting at the same few hard values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from hypothesis import strategies as st

from ragstore.access.conditions.resource import resource_of
from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    HIERARCHICAL,
    PATH,
    READ_ACTION,
    SUPERUSER_ACTION,
    TAGS,
    TIME,
    ActionMatches,
    And,
    Attribute,
    AttributeValue,
    Comparison,
    Condition,
    Constant,
    Context,
    Exists,
    Not,
    Operand,
    Or,
    Quantifier,
    Scalar,
    SourceName,
    SubOperationMatches,
    Values,
)
from ragstore.access.conditions.values import OPERATORS
from ragstore.models import AccessAttributes

SECURITY_ATTRIBUTES: Final = "Microsoft.Directory/CustomSecurityAttributes/Id"
WORDS: Final = (
    "",
    "a",
    "A",
    "ab",
    "Ab",
    "aB",
    "red",
    "Red",
    "RED",
    "o'hara",
    "''",
    "'",
    "\\",
    "\\'",
    "a\\",
    "50%",
    "50",
    "a_b",
    "axb",
    "a*b",
    "a?b",
    "a\nb",
    "straße",
    "STRASSE",
    "\u212a",
    "k",
    "K",
    "ı",
    "i",
    "10",
    "9",
    "-1",
    "ten",
    "true",
    "True",
    "false",
)
"""Values that differ only in case, or hold quotes, escapes and the wildcards of LIKE, or are numbers and booleans as tags hold them."""
PREFIXES: Final = ("", "a/", "A/", "docs/", "Docs/", "docs", "doc_s/", "doc%/", "docs/'q'/", "docs//", "docs/\\")
PATHS: Final = (
    *PREFIXES[1:],
    "a/x.md",
    "A/x.md",
    "docs/a.txt",
    "Docs/a.txt",
    "docs/A.txt",
    "doc_s/a",
    "docXs/a",
    "doc%/a",
    "docs/'q'/b",
    "ß",
)
PATTERNS: Final = (
    "*",
    "a*",
    "A*",
    "*b",
    "a?b",
    "a\\*b",
    "a\\?b",
    "docs/*",
    "Docs/*",
    "docs/*.txt",
    "*/a*",
    "?",
    "50%*",
    "a_b",
    "\\\\*",
    "",
)
GUIDS: Final = ("aaaaaaaa-0000-0000-0000-000000000001", "AAAAAAAA-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002")
INSTANTS: Final = (
    "2022-06-01T23:38:32.8883645Z",
    "2022-06-01T23:38:32.8883646Z",
    "2022-06-01T00:00:00Z",
    "2022-06-01T00:00:00.0Z",
    "2022-13-01T00:00:00Z",
)
TAG_KEYS: Final = ("Project", "project", "Program", "clearance", "a b+c-d.e:f=g_h/i")
_BLOBS: Final = PATH.partition(":")[0]
NAMES: Final[Mapping[SourceName, tuple[str, ...]]] = {
    "Resource": (ACCOUNT, CONTAINER, PATH, PATH, PATH, CURRENT_VERSION, ENCRYPTION_SCOPE, HIERARCHICAL),
    "Request": (f"{_BLOBS}:prefix", f"{_BLOBS}:versionId", f"{_BLOBS}:snapshot", "subOperation"),
    "Principal": tuple(f"{SECURITY_ATTRIBUTES}:{name}" for name in ("Set_Project", "Set_Level", "Set_cleared")),
    "Environment": (TIME, "isPrivateLink", "Microsoft.Network/virtualNetworks/subnets"),
}
"""The attributes of each source besides tags; paths thrice, because most conditions are about them."""
_SUBOPERATIONS: Final = ("Blob.List", "Blob.Read.WithTagConditions", "blob.read.*", "*")
_POOLS: Final[Mapping[str, tuple[Scalar, ...]]] = {
    "String": (*WORDS, *PREFIXES, *PATHS),
    "Numeric": (-1, 0, 9, 10, 50, 2**63 - 1, "10"),
    "DateTime": INSTANTS,
    "Bool": (True, False, "true"),
    "Guid": GUIDS,
}
_WRONG: Final[tuple[Scalar, ...]] = ("a", 9, True, "")


def attributes(*sources: SourceName) -> st.SearchStrategy[Attribute]:
    """Attributes of these sources, or of all; about half of those of the resource are tags."""
    return st.sampled_from(sources or tuple(NAMES)).flatmap(_attributes)


def conditions(*sources: SourceName, max_leaves: int = 8) -> st.SearchStrategy[Condition]:
    """Trees as the parser makes them, about attributes of these sources, or of all: short and shallow enough to be printed and parsed."""
    leaves = st.one_of(
        comparisons(*sources),
        comparisons(*sources),
        comparisons(*sources),
        attributes(*sources).map(Exists),
        st.sampled_from([READ_ACTION, READ_ACTION.upper(), "*/read", "*", SUPERUSER_ACTION, f"{TAGS}/read"]).map(ActionMatches),
        st.sampled_from(_SUBOPERATIONS).map(SubOperationMatches),
    )
    return st.recursive(leaves, _nested, max_leaves=max_leaves)


def comparisons(*sources: SourceName) -> st.SearchStrategy[Comparison]:
    """Mostly an attribute and a value of the operator's type; also two attributes, two values, and the wrong type."""
    return st.sampled_from(tuple(OPERATORS)).flatmap(lambda operator: _comparisons(operator, sources))


def access_attributes() -> st.SearchStrategy[AccessAttributes]:
    """Blobs of two accounts: untagged ones, and such whose tags and paths differ in case, hold quotes, wildcards or nothing."""
    return st.builds(
        AccessAttributes,
        account=st.sampled_from(["acct", "other"]),
        container=st.sampled_from(["docs", "red", "a"]),
        path=st.sampled_from([*PATHS, *(word for word in WORDS if word)]),
        tags=_tags(),
        metadata=st.dictionaries(st.sampled_from(["project", "clearance"]), st.sampled_from(WORDS), max_size=1),
        is_current_version=st.booleans(),
        encryption_scope=st.sampled_from([None, None, "a", "red"]),
    )


def principal_attributes() -> st.SearchStrategy[dict[str, AttributeValue]]:
    """Custom security attributes under their full names: none, one value, several, and lists of none."""
    scalars: st.SearchStrategy[Scalar] = st.sampled_from([*WORDS, *GUIDS, 9, 10, True])
    values: st.SearchStrategy[AttributeValue] = st.one_of(scalars, st.lists(scalars, max_size=3).map(tuple))
    return st.dictionaries(st.sampled_from([*NAMES["Principal"], NAMES["Principal"][0].upper()]), values, max_size=2)


def contexts(blobs: st.SearchStrategy[AccessAttributes] | None = None) -> st.SearchStrategy[Context]:
    """Reads of such blobs by such principals; the request and the environment mostly say nothing, as in a retrieval."""
    return st.builds(
        _context,
        blobs or access_attributes(),
        suboperations=st.sampled_from([frozenset({"Blob.Read.WithTagConditions"}), frozenset({"Blob.List"}), frozenset()]),
        action=st.sampled_from([READ_ACTION, READ_ACTION, SUPERUSER_ACTION]),
        request=st.dictionaries(st.sampled_from(NAMES["Request"]), st.sampled_from([*INSTANTS, *PREFIXES]), max_size=1),
        request_tags=_tags(),
        principal=principal_attributes(),
        environment=st.fixed_dictionaries({}, optional={TIME: st.sampled_from(INSTANTS), "isPrivateLink": st.booleans()}),
    )


def _context(blob: AccessAttributes, **others: Any) -> Context:  # noqa: ANN401 - the fields of Context, as drawn
    resource, tags = resource_of(blob)
    return Context(resource=resource, tags=tags, **others)


def _tags() -> st.SearchStrategy[dict[str, str]]:
    tagged = st.dictionaries(st.sampled_from(TAG_KEYS), st.sampled_from([*WORDS, *GUIDS[:1], *INSTANTS[:1]]), max_size=3)
    return st.one_of(st.just({}), tagged, tagged)


def _attributes(source: SourceName) -> st.SearchStrategy[Attribute]:
    plain = st.sampled_from(NAMES[source]).map(lambda name: _named(source, name))
    if source not in {"Resource", "Request"}:
        return plain
    tags = st.sampled_from(TAG_KEYS).map(lambda key: Attribute(source=source, path=TAGS, key=key, case_sensitive=True))
    return st.one_of(plain, tags, tags, st.just(Attribute(source=source, path=TAGS, keys=True)))


def _named(source: SourceName, name: str) -> Attribute:
    path, colon, key = name.partition(":")
    return Attribute(source=source, path=path, key=key if colon else None)


def _comparisons(operator: str, sources: tuple[SourceName, ...]) -> st.SearchStrategy[Comparison]:
    meaning = OPERATORS[operator]
    pool = PATTERNS if meaning.relation == "Like" else PREFIXES if meaning.relation == "StartsWith" else _POOLS[meaning.family]
    # A text that ends in a backslash has no literal: `\'` is a quote.
    expressible = [value for value in (*pool, *pool, *_WRONG) if not str(value).endswith("\\")]
    constants = st.sampled_from(expressible).map(Constant)
    if not meaning.takes_quantifier:
        return _sided(operator, None, st.one_of(constants, constants.map(lambda one: Values((one,)))), sources)
    in_braces = st.one_of(constants, st.sampled_from(GUIDS).map(lambda guid: Constant(guid, bare=True)))
    sets = st.lists(in_braces if meaning.family == "Guid" else constants, min_size=1, max_size=3).map(lambda items: Values(tuple(items)))
    quantified = st.sampled_from(get_args(Quantifier)).flatmap(lambda quantifier: _sided(operator, quantifier, sets, sources))
    return st.one_of(_sided(operator, None, constants, sources), quantified)


def _sided(
    operator: str, quantifier: Quantifier | None, values: st.SearchStrategy[Operand], sources: tuple[SourceName, ...]
) -> st.SearchStrategy[Comparison]:
    def compared(left: Operand, right: Operand) -> Comparison:
        return Comparison(left=left, operator=operator, right=right, quantifier=quantifier)

    found = attributes(*sources)
    usual = st.builds(compared, found, values)
    return st.one_of(
        usual, usual, usual, st.builds(compared, found, found), st.builds(compared, values, found), st.builds(compared, values, values)
    )


def _nested(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, inner))
