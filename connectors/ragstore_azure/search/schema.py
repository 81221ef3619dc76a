"""Rows in, documents of an index out, and back: the fields of an index, and what differs where somebody else made it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ragstore.models import AccessColumns, Row, RowKey
from ragstore.terms import row_terms
from ragstore_azure.search.filters import directories
from ragstore_azure.search.strings import chunk_of, comparable, is_digest, key_of, original, prose, storable

SCALARS: Final = ("account", "container", "path", "media_type")
LISTS: Final = ("allowed", "labels", "label_keys")
KEY_FIELDS: Final = ("key", "document_id", "generation", "ordinal", *SCALARS, *LISTS, "originals")
ROW_FIELDS: Final = (*KEY_FIELDS, "text", "vector")
MOST_DIMENSIONS: Final = 4_096
"""Of a vector field (https://learn.microsoft.com/azure/search/search-limits-quotas-capacity)."""
_LONGEST_TERM: Final = 128
"""Characters; the vendor's analyzer cuts words at 255 units, ours become a digest before that."""
_SWITCHES: Final = ("key", "searchable", "filterable", "sortable", "retrievable")
_COMPARED: Final = ("type", *_SWITCHES, "stored", "dimensions", "analyzer")


def definition(name: str, dimensions: int, semantic: str | None) -> dict[str, Any]:
    """The index as the service is told of it.

    `terms` is what full text searches: the words of `text` after our own analysis, split at white space and nothing else. `ordinal` is
    made from the key, because a string cannot be compared by size, and whoever reads all rows must go on behind one.
    """
    strings = {"type": "Edm.String"}
    fields: dict[str, dict[str, Any]] = {
        "key": {**strings, "key": True, "filterable": True, "sortable": True},
        "document_id": {**strings, "filterable": True},
        "generation": {"type": "Edm.Int64", "filterable": True},
        "ordinal": {"type": "Edm.Int64", "filterable": True, "sortable": True},
        "stamp": {"type": "Edm.Int64", "filterable": True},
        "text": {**strings, "searchable": semantic is not None},
        "terms": {**strings, "searchable": True, "retrievable": False, "analyzer": "whitespace"},
        **{column: {**strings, "filterable": True} for column in SCALARS},
        **{column: {"type": "Collection(Edm.String)", "filterable": True} for column in LISTS},
        "prefixes": {"type": "Collection(Edm.String)", "filterable": True, "retrievable": False},
        "originals": strings,
    }
    plain = {"key": False, "searchable": False, "filterable": False, "sortable": False, "facetable": False, "retrievable": True}
    vector = {**plain, "type": "Collection(Edm.Single)", "searchable": True, "stored": True}
    listed = [{"name": field, **plain, **attributes} for field, attributes in fields.items()]
    listed.append({"name": "vector", **vector, "dimensions": dimensions, "vectorSearchProfile": "nearest"})
    made: dict[str, Any] = {"name": name, "fields": listed, "vectorSearch": _VECTOR_SEARCH, "similarity": _SIMILARITY}
    if semantic is not None:
        content = {"prioritizedContentFields": [{"fieldName": "text"}]}
        made["semantic"] = {"configurations": [{"name": semantic, "prioritizedFields": content}]}
    return made


_SIMILARITY: Final = {"@odata.type": "#Microsoft.Azure.Search.BM25Similarity"}
_VECTOR_SEARCH: Final = {
    "algorithms": [
        {"name": "hnsw", "kind": "hnsw", "hnswParameters": {"m": 4, "efConstruction": 400, "efSearch": 500, "metric": "cosine"}},
        {"name": "exhaustive", "kind": "exhaustiveKnn", "exhaustiveKnnParameters": {"metric": "cosine"}},
    ],
    "profiles": [{"name": "nearest", "algorithm": "hnsw"}, {"name": "exact", "algorithm": "exhaustive"}],
}


def found_dimensions(found: Mapping[str, Any]) -> int | None:
    """Of the vectors of an index, where it has any."""
    field = _named(found.get("fields")).get("vector", {})
    return field.get("dimensions")


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What keeps the index `found` from being used as `wanted`, each in a few words. Further fields are nobody's business."""
    present, problems = _named(found.get("fields")), []
    for name, field in _named(wanted["fields"]).items():
        if name not in present:
            problems.append(f"the field {name!r} is missing")
            continue
        for attribute in _COMPARED:
            has, needs = present[name].get(attribute), field.get(attribute)
            if (bool(has) != bool(needs)) if attribute in _SWITCHES else (needs is not None and has != needs):
                problems.append(f"the field {name!r} has {attribute} = {_shown(has)}, not {_shown(needs)}")
    problems += _vector_differences(found, present.get("vector", {}))
    for configuration in _named(wanted.get("semantic", {}).get("configurations")):
        if configuration not in _named((found.get("semantic") or {}).get("configurations")):
            problems.append(f"the semantic configuration {configuration!r} is missing")
    return problems


def _vector_differences(found: Mapping[str, Any], field: Mapping[str, Any]) -> list[str]:
    search = found.get("vectorSearch") or {}
    profile = _named(search.get("profiles")).get(field.get("vectorSearchProfile") or "", {})
    algorithm = _named(search.get("algorithms")).get(profile.get("algorithm") or "", {})
    if not algorithm:
        return ["the field 'vector' has no profile of vector search"]
    problems = []
    if profile.get("compression"):
        problems.append("the field 'vector' is compressed, which makes scores inexact")
    kind = algorithm.get("kind", "")
    metric = (algorithm.get(f"{kind}Parameters") or {}).get("metric")
    if metric not in {None, "cosine"}:
        problems.append(f"the vectors are compared by {metric}, not by cosine")
    return problems


def _named(listed: Any) -> dict[str, Mapping[str, Any]]:  # noqa: ANN401 - JSON
    return {one["name"]: one for one in listed or ()}


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


def terms_of(words: list[str]) -> str:
    """Our terms between blanks; the analyzer splits there and changes nothing."""
    return " ".join(term if len(term) <= _LONGEST_TERM else _digest(term) for term in words)


def _digest(term: str) -> str:
    """No term begins with `_`, which separates words."""
    return "_" + hashlib.blake2b(term.encode(), digest_size=16).hexdigest()


def to_document(row: Row, stamp: int) -> dict[str, Any]:
    """All fields of a row."""
    key = key_of(row.chunk_id)
    return {
        "key": key,
        "document_id": storable(row.document_id),
        "generation": row.generation,
        "ordinal": ordinal(key),
        "stamp": stamp,
        "text": prose(row.text),
        "terms": terms_of(row_terms(row.text)),
        "vector": np.asarray(row.vector, np.float32).tolist(),
        **access_fields(row.access),
    }


def access_fields(access: AccessColumns) -> dict[str, Any]:
    """The fields that a retag sets, none of them ever null but `originals`, which is there for what a filterable field cannot hold."""
    fields: dict[str, Any] = {column: comparable(getattr(access, column)) for column in SCALARS}
    fields |= {column: [comparable(value) for value in getattr(access, column)] for column in LISTS}
    stored = [*(fields[column] for column in SCALARS), *(value for column in LISTS for value in fields[column])]
    originals = None
    if any(map(is_digest, stored)):
        scalars = {column: storable(getattr(access, column)) for column in SCALARS}
        originals = json.dumps(scalars | {column: [storable(value) for value in getattr(access, column)] for column in LISTS})
    return {**fields, "prefixes": directories(access), "originals": originals}


def ordinal(key: str) -> int:
    """A number of 63 bits that is different for different keys, but for accidents that nobody will live to see."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 1


def to_key(document: Mapping[str, Any]) -> RowKey:
    """The key of a row, from a document with `KEY_FIELDS`."""
    stored: Mapping[str, Any] = json.loads(document["originals"]) if document.get("originals") else document
    return RowKey(
        chunk_id=chunk_of(document["key"]),
        document_id=original(document["document_id"]),
        generation=document["generation"],
        access=AccessColumns(
            account=original(stored["account"]),
            container=original(stored["container"]),
            path=original(stored["path"]),
            media_type=original(stored["media_type"]),
            allowed=tuple(map(original, stored["allowed"])),
            labels=tuple(map(original, stored["labels"])),
            label_keys=tuple(map(original, stored["label_keys"])),
        ),
    )


def to_row(document: Mapping[str, Any]) -> Row:
    """The row, from a document with `ROW_FIELDS`."""
    key = to_key(document)
    return Row(
        chunk_id=key.chunk_id,
        document_id=key.document_id,
        generation=key.generation,
        text=original(document["text"]),
        vector=np.array(document["vector"], np.float32),
        access=key.access,
    )
