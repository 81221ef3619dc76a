"""A body of a request or an answer in; what of it the API of Azure AI Search does not know out.

The API is that of `RAGSTORE_SHARED/specs/azure-search`, which was read out of the SDK; without that folder a short list of names serves.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

_SPEC: Final = "specs/azure-search/azure_search_2026-04-01_from_sdk12.json"
_MODEL: Final = re.compile(r"_models\.(?:_models\.)?(\w+)")
_OPEN: Final = {"IndexAction": "@search.", "SearchResult": "@search."}
"""Models that carry the fields of documents beside their own, which begin like this."""
_DELIMITED: Final = frozenset({"highlight", "orderby", "searchFields", "select"})
"""Lists of `SearchRequest` that are one string on the wire, with commas (`format="commaDelimited"`, which the specification left out)."""
_KNOWN: Final[Mapping[str, str]] = {
    "SearchRequest": "count filter orderby queryType scoringStatistics search searchFields searchMode select skip top semanticConfiguration"
    " semanticErrorHandling semanticQuery vectorQueries vectorFilterMode",
    "SearchDocumentsResult": "@odata.count value",
    "IndexDocumentsBatch": "value",
    "IndexDocumentsResult": "value",
    "SearchIndex": "name fields vectorSearch semantic similarity @odata.etag",
    "GetIndexStatisticsResult": "documentCount storageSize vectorIndexSize",
    "ErrorResponse": "error",
}
_PYTHON: Final[Mapping[str, type | tuple[type, ...]]] = {
    "<class 'str'>": str,
    "<class 'int'>": int,
    "<class 'bool'>": bool,
    "<class 'float'>": (int, float),
}


class Contract:
    """The models of the API."""

    def __init__(self, spec: Mapping[str, Any] | None) -> None:
        self._models: Mapping[str, Any] = spec["definitions"] if spec else {}
        self._enums: Mapping[str, list[str]] = spec["enums"] if spec else {}
        # Asked of each document of each body, so each is found out once.
        self._kinds_of = cache(self._kinds)
        self._properties_of = cache(self._properties)

    def problems(self, model: str, body: Any, at: str = "") -> list[str]:
        """What is wrong with a body that should be this model; nothing where all is well."""
        if not isinstance(body, Mapping):
            return [f"{at or model} is no object"]
        if not self._models:
            known = _KNOWN[model].split()
            return [f"{at}{name} is unknown" for name in body if name not in known]
        return self._of_model(model, body, at)

    def _of_model(self, model: str, body: Mapping[str, Any], at: str) -> list[str]:
        model = self._narrowed(model, body)
        properties, required = self._properties_of(model)
        prefix = _OPEN.get(model)
        found = [f"{at}{name} is missing" for name in required if name not in body]
        for name, value in body.items():
            if name in _DELIMITED and model == "SearchRequest":
                found += [] if isinstance(value, str) else [f"{at}{name} is no string"]
            elif name in properties:
                found += self._of_value(properties[name]["type"], value, f"{at}{name}")
            elif prefix is None or name.startswith(prefix):
                found.append(f"{at}{name} is unknown")
        return found

    def _of_value(self, declared: str, value: Any, at: str) -> list[str]:
        if value is None:
            return [] if "Optional" in declared or "NoneType" in declared else [f"{at} is null"]
        if "list[" in declared and "dict[" not in declared:
            if not isinstance(value, list):
                return [f"{at} is no list"]
            inner = declared[declared.index("list[") + 5 :]
            return [problem for number, one in enumerate(value) for problem in self._of_value(inner, one, f"{at}[{number}]")]
        named = _MODEL.search(declared)
        if named is not None and named[1] in self._models:
            return self._of_model(named[1], value, f"{at}.") if isinstance(value, Mapping) else [f"{at} is no object"]
        if named is not None and named[1] in self._enums:
            return [] if isinstance(value, str) else [f"{at} is no string"]
        plain = re.sub(r"typing\.Optional\[(.*)\]$", r"\1", declared)
        wanted = _PYTHON.get(plain) or _PYTHON.get(f"<class '{plain}'>")
        if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
            return [f"{at} is {value!r}"]
        return []

    def _narrowed(self, model: str, body: Mapping[str, Any]) -> str:
        """The kind of the model that the body says it is."""
        return next((other for name, other, kind in self._kinds_of(model) if repr(body.get(name)) in kind), model)

    def _kinds(self, model: str) -> list[tuple[str, str, str]]:
        """Field, model and declared type of the field, of the models that are made of this one."""
        return [
            (name, other, declared["properties"][name]["type"])
            for name in ("kind", "@odata.type")
            for other, declared in self._models.items()
            if model in declared["bases"] and name in declared["properties"]
        ]

    def _properties(self, model: str) -> tuple[dict[str, Any], set[str]]:
        properties: dict[str, Any] = {}
        for base in self._models[model]["bases"]:
            if base in self._models:
                properties |= self._properties(base)[0]
        properties |= self._models[model]["properties"]
        required = set(self._models[model]["required_py"])
        return properties, {wire for wire, declared in properties.items() if declared["py"] in required}


@lru_cache(maxsize=1)
def contract() -> Contract:
    """That of the shared folder, or the short one."""
    folder = os.environ.get("RAGSTORE_SHARED")
    file = Path(folder, _SPEC) if folder else None
    return Contract(json.loads(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else None)
