"""A definition of an index in; an index that takes documents and answers queries as Azure AI Search documents it out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.fakes.azure_search_odata import ODataError, compiled
from tests.fakes.azure_search_text import parsed, scores

MOST_ACTIONS: Final = 1_000
MOST_ROWS: Final = 1_000
MOST_SKIPPED: Final = 100_000
MOST_NEAREST: Final = 10_000
LONGEST_FILTERABLE: Final = 32_766
_DEFAULT_ROWS: Final = 50
_RERANKED: Final = 50
_RRF: Final = 60
_NAME: Final = re.compile("[a-z0-9](-?[a-z0-9])*")
_KEY: Final = re.compile("[A-Za-z0-9=-][A-Za-z0-9_=-]*")
_TYPES: Final = {"Edm.String", "Edm.Int32", "Edm.Int64", "Edm.Boolean", "Edm.Double", "Collection(Edm.String)", "Collection(Edm.Single)"}
_VECTOR: Final = "Collection(Edm.Single)"
_ATTRIBUTES: Final = ("key", "searchable", "filterable", "sortable", "facetable", "retrievable")

Document = dict[str, Any]


class RefusedError(Exception):
    """What the service answers with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _Pending:
    due: float
    key: str
    document: Document | None


class Index:
    """Writes are visible `delay` seconds after they are answered."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.fields: dict[str, Mapping[str, Any]] = {field["name"]: field for field in definition["fields"]}
        self.definition = _checked(definition, self.fields)
        self.written: dict[str, Document] = {}
        """As it will be seen."""
        self.delay = 0.0
        self.loses_neighbours = False
        """A search of the graph misses every other row that the filter admits, as approximate search may."""
        self._visible: dict[str, Document] = {}
        self._pending: list[_Pending] = []
        self._key = next(name for name, field in self.fields.items() if field.get("key"))

    def act(self, action: Mapping[str, Any]) -> tuple[int, str | None]:
        """Carry out one action of a batch: its status, and what is wrong."""
        kind = action.get("@search.action", "upload")
        given = {name: value for name, value in action.items() if name != "@search.action"}
        key = given.get(self._key)
        if not isinstance(key, str) or not _KEY.fullmatch(key) or len(key) > 1_024:
            return 400, f"Invalid document key: '{key}'. Keys can only contain letters, digits, underscore, dash, or equal sign"
        if kind == "delete":
            self._write(key, None)
            return 200, None
        stored = self.written.get(key)
        if kind == "merge" and stored is None:
            return 404, "Document not found."
        problem = next((said for name, value in given.items() if (said := self._problem(name, value))), None)
        if problem is not None:
            return 400, problem
        kept = stored if stored is not None and kind in {"merge", "mergeOrUpload"} else self._empty()
        self._write(key, {**kept, **given})
        return (200 if stored is not None else 201), None

    def visible(self) -> dict[str, Document]:
        """What a query sees now."""
        now = time.monotonic()
        while self._pending and self._pending[0].due <= now:
            done = self._pending.pop(0)
            if done.document is None:
                self._visible.pop(done.key, None)
            else:
                self._visible[done.key] = done.document
        return self._visible

    def search(self, request: Mapping[str, Any]) -> Document:
        """The answer to a search request; raises `RefusedError`."""
        top, skip = request.get("top", _DEFAULT_ROWS), request.get("skip") or 0
        if not 0 <= top <= MOST_ROWS or not 0 <= skip <= MOST_SKIPPED:
            raise RefusedError(400, f"top is 0 to {MOST_ROWS}, skip 0 to {MOST_SKIPPED}")
        admitted = self._admitted(request.get("filter"))
        ranked = self._ranked(request, admitted)
        answer: Document = {"@odata.count": len(ranked)} if request.get("count") else {}
        select = _split(request.get("select")) or [name for name, field in self.fields.items() if field.get("retrievable")]
        for name in select:
            if not self.fields.get(name, {}).get("retrievable"):
                raise RefusedError(400, f"Invalid expression: '{name}' is not a retrievable field")
        if request.get("orderby"):
            ranked = self._ordered(ranked, _split(request["orderby"]))
        page = ranked[skip : skip + top]
        reranked = self._reranked(request, page) if request.get("queryType") == "semantic" else {}
        page.sort(key=lambda one: -reranked.get(one[0][self._key], -1.0))
        answer["value"] = [
            {"@search.score": score, **_of_reranker(reranked, document[self._key]), **{name: document.get(name) for name in select}}
            for document, score in page
        ]
        return answer

    def _ranked(self, request: Mapping[str, Any], admitted: dict[str, Document]) -> list[tuple[Document, float]]:
        legs = []
        vectors = request.get("vectorQueries") or []
        text = request.get("search")
        if text not in {None, "*"} or not vectors:
            legs.append(self._by_text(text, request, admitted))
        # An index that is old enough filters afterwards unless told otherwise, so whoever does not say is served like that.
        after = request.get("filter") is not None and request.get("vectorFilterMode") != "preFilter"
        for query in vectors:
            leg = self._nearest(query, self.visible() if after else admitted)
            legs.append([(key, score) for key, score in leg if key in admitted])
        if len(legs) == 1:
            return [(admitted[key], score) for key, score in legs[0]]
        fused: dict[str, float] = {}
        for leg in legs:
            for rank, (key, _) in enumerate(leg, start=1):
                fused[key] = fused.get(key, 0.0) + 1.0 / (_RRF + rank)
        return [(admitted[key], score) for key, score in sorted(fused.items(), key=lambda item: -item[1])]

    def _by_text(self, text: str | None, request: Mapping[str, Any], admitted: dict[str, Document]) -> list[tuple[str, float]]:
        if text in {None, "*"}:
            return [(key, 1.0) for key in admitted]
        searchable = [name for name, field in self.fields.items() if field.get("searchable") and field["type"] != _VECTOR]
        fields = _split(request.get("searchFields")) or searchable
        if request.get("queryType", "simple") == "full" or not set(fields) <= set(searchable):
            raise RefusedError(400, "searchFields must be searchable; the full syntax is not known here")
        query = parsed(str(text), every=request.get("searchMode", "any") == "all")
        if query.clauses > 3_000:
            raise RefusedError(400, "the query has too many clauses")
        # The statistics are those of the whole index, whatever the filter admits.
        found = scores(self.visible(), {name: self.fields[name].get("analyzer") for name in fields}, query)
        best = sorted(((key, score) for key, score in found.items() if key in admitted), key=lambda item: -item[1])
        return [(key, float(np.float32(score))) for key, score in best]

    def _nearest(self, query: Mapping[str, Any], among: dict[str, Document]) -> list[tuple[str, float]]:
        field = self.fields.get(query.get("fields", ""), {})
        nearest = query.get("k", _DEFAULT_ROWS)
        if field.get("type") != _VECTOR or len(query["vector"]) != field["dimensions"]:
            raise RefusedError(400, "The vector field is unknown, or the query vector has another number of dimensions")
        if not 1 <= nearest <= MOST_NEAREST:
            raise RefusedError(400, f"k is 1 to {MOST_NEAREST}")
        keys = [key for key, document in among.items() if document.get(field["name"])]
        if self.loses_neighbours and not query.get("exhaustive"):
            keys = keys[::2]
        if not keys:
            return []
        stacked = np.array([among[key][field["name"]] for key in keys], np.float32)
        wanted = np.array(query["vector"], np.float32)
        lengths = np.linalg.norm(stacked, axis=1) * np.linalg.norm(wanted)
        cosines = stacked @ wanted / np.maximum(lengths, np.float32(1e-30))
        order = np.argsort(-cosines, kind="stable")[:nearest]
        return [(keys[at], float(np.float32(1.0 / (2.0 - cosines[at])))) for at in order]

    def _reranked(self, request: Mapping[str, Any], page: Iterable[tuple[Document, float]]) -> dict[str, float]:
        configurations = {one["name"]: one for one in (self.definition.get("semantic") or {}).get("configurations") or ()}
        chosen = configurations.get(request.get("semanticConfiguration"))
        if chosen is None:
            raise RefusedError(400, "The semantic configuration is unknown")
        content = [one["fieldName"] for one in chosen["prioritizedFields"]["prioritizedContentFields"]]
        words = set(str(request.get("semanticQuery") or request.get("search")).lower().split())
        found = {}
        for document, _ in list(page)[:_RERANKED]:
            text = " ".join(str(document.get(name) or "") for name in content).lower()
            found[document[self._key]] = 4.0 * sum(word in text for word in words) / max(1, len(words))
        return found

    def _admitted(self, odata: str | None) -> dict[str, Document]:
        documents = self.visible()
        if odata is None:
            return dict(documents)
        try:
            test = compiled(odata, self.fields)
        except ODataError as error:
            raise RefusedError(400, str(error)) from error
        return {key: document for key, document in documents.items() if test(document)}

    def _ordered(self, ranked: list[tuple[Document, float]], orders: Iterable[str]) -> list[tuple[Document, float]]:
        for order in reversed(list(orders)):
            name, _, direction = order.partition(" ")
            if not self.fields.get(name, {}).get("sortable"):
                raise RefusedError(400, f"Invalid expression: '{name}' is not a sortable field")
            ranked = sorted(ranked, key=lambda one: one[0][name], reverse=direction == "desc")
        return ranked

    def _problem(self, name: str, value: Any) -> str | None:
        field = self.fields.get(name)
        if field is None:
            return f"The property '{name}' does not exist on type 'search.documentFields'."
        kind = field["type"]
        if value is None:
            return f"'{name}' is a collection and cannot be null" if kind.startswith("Collection") or field.get("key") else None
        values = value if kind.startswith("Collection") else [value]
        if not isinstance(values, list):
            return f"'{name}' is a collection"
        if kind == _VECTOR:
            good = len(values) == field["dimensions"] and all(isinstance(one, float | int) for one in values)
            return None if good else f"The vector field '{name}' needs {field['dimensions']} numbers"
        if kind.startswith("Edm.Int"):
            return None if isinstance(value, int) and abs(value) < 2 ** int(kind[7:]) / 2 else f"'{name}' is no {kind}"
        if not all(isinstance(one, str) for one in values):
            return f"'{name}' is no {kind}"
        limited = any(field.get(attribute) for attribute in ("filterable", "sortable", "facetable"))
        if limited and any(len(one.encode()) > LONGEST_FILTERABLE for one in values):
            return f"Field '{name}' contains a term that is too large to process. The max length for UTF-8 encoded terms is 32766 bytes."
        return None

    def _empty(self) -> Document:
        return {name: [] if field["type"] == "Collection(Edm.String)" else None for name, field in self.fields.items()}

    def _write(self, key: str, document: Document | None) -> None:
        if document is None:
            self.written.pop(key, None)
        else:
            self.written[key] = document
        self._pending.append(_Pending(time.monotonic() + self.delay, key, document))


def _split(listed: str | None) -> list[str]:
    return [one.strip() for one in listed.split(",")] if listed else []


def _of_reranker(reranked: Mapping[str, float], key: str) -> Document:
    return {"@search.rerankerScore": reranked[key]} if key in reranked else {}


def _checked(definition: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> Document:
    """The definition as the service gives it back; raises `RefusedError`."""
    if not _NAME.fullmatch(definition["name"]) or len(definition["name"]) > 128:
        raise RefusedError(400, "Index name must only contain lowercase letters, digits or dashes, and no dash beside a dash or at an end")
    if len(fields) != len(definition["fields"]) or [bool(field.get("key")) for field in fields.values()].count(True) != 1:
        raise RefusedError(400, "Names of fields are different, and one field is the key")
    search = definition.get("vectorSearch") or {}
    algorithms = {one["name"]: one for one in search.get("algorithms") or ()}
    profiles = {one["name"]: one for one in search.get("profiles") or ()}
    if not all(one["algorithm"] in algorithms for one in profiles.values()):
        raise RefusedError(400, "A profile names an algorithm that is not there")
    filled = []
    for name, field in fields.items():
        problem = _field_problem(field, profiles)
        if problem:
            raise RefusedError(400, f"The field '{name}' {problem}")
        filled.append({**dict.fromkeys(_ATTRIBUTES, False), "analyzer": None, "dimensions": None, **field})
    return {**definition, "fields": filled, "@odata.etag": '"0x1"'}


def _field_problem(field: Mapping[str, Any], profiles: Mapping[str, Any]) -> str | None:
    kind = field["type"]
    flags = {attribute for attribute in _ATTRIBUTES if field.get(attribute)}
    if kind not in _TYPES or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", field["name"]) or len(field["name"]) > 128:
        return "has a name or a type that is not known"
    if kind == _VECTOR:
        if flags & {"filterable", "sortable", "facetable", "key"} or "searchable" not in flags:
            return "is a vector, which is searchable and nothing else"
        good = field.get("vectorSearchProfile") in profiles and 2 <= (field.get("dimensions") or 0) <= 4_096
        return None if good else "needs a profile that is there, and 2 to 4096 dimensions"
    if "searchable" in flags and "String" not in kind:
        return "is no string and not searchable"
    if "sortable" in flags and kind.startswith("Collection"):
        return "is a collection and not sortable"
    if "key" in flags and (kind != "Edm.String" or "retrievable" not in flags):
        return "is the key, a string that is retrievable"
    if field.get("analyzer") and "searchable" not in flags:
        return "has an analyzer and is not searchable"
    return None
