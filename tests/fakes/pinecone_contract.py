"""A request or an answer in, what breaks the vendor's contract out: OpenAPI of 2025-10 and 2026-04, and what the SDK of 2026-07 decodes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

_VERSIONS: Final = ("2025-10", "2026-04")
_REQUESTS: Final = {
    "/vectors/upsert": "UpsertRequest",
    "/query": "QueryRequest",
    "/vectors/delete": "DeleteRequest",
    "/vectors/update": "UpdateRequest",
    "/describe_index_stats": "DescribeIndexStatsRequest",
}
_ANSWERS: Final = {
    "/vectors/upsert": ("UpsertResponse", "UpsertResponse"),
    "/query": ("QueryResponse", "QueryResponse"),
    "/vectors/fetch": ("FetchResponse", "FetchResponse"),
    "/vectors/list": ("ListResponse", "ListResponse"),
    "/vectors/update": ("UpdateResponse", "UpdateResponse"),
    "/describe_index_stats": ("IndexDescription", "DescribeIndexStatsResponse"),
}
_PARAMETERS: Final = {"/vectors/fetch", "/vectors/list"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class Contract:
    """The vendor's published schemas. `problems` are of everything that was looked at so far."""

    def __init__(self, folder: Path) -> None:
        self._documents = [_yaml(folder / version / f"db_data_{version}.oas.yaml") for version in _VERSIONS]
        self._structs: dict[str, Any] = json.loads((folder / "pinecone_2026-07_from_sdk10.2.json").read_text())["structs"]
        self.problems: list[str] = []
        self.checked = 0

    def request(self, path: str, parameters: Mapping[str, list[str]], body: object) -> None:
        """A request of the data plane, or the creation of an index."""
        self.checked += 1
        if path == "/indexes":
            self._note(path, self._struct("CreateIndexRequest", body))
        for document in self._documents:
            if path in _REQUESTS:
                self._note(path, _differences(document, {"$ref": f"#/components/schemas/{_REQUESTS[path]}"}, body, "request"))
            if path in _PARAMETERS:
                known = {one.get("name") for one in document["paths"][path]["get"]["parameters"]}
                self._note(path, (f"parameter {name!r} is unknown" for name in parameters if name not in known))

    def answer(self, path: str, body: object) -> None:
        """An answer of the data plane with status 200, or the description of an index."""
        self.checked += 1
        if path in _ANSWERS:
            schema, struct = _ANSWERS[path]
            for document in self._documents:
                self._note(path, _differences(document, {"$ref": f"#/components/schemas/{schema}"}, body, "answer"))
            self._note(path, self._struct(struct, body))
        elif path.startswith("/indexes"):
            self._note(path, self._struct("IndexModel", body))

    def _note(self, path: str, found: Iterator[str]) -> None:
        self.problems += [f"{path}: {one}" for one in found]

    def _struct(self, name: str, body: object) -> Iterator[str]:
        fields = self._structs[name]
        if not isinstance(body, dict):
            yield f"{name} is no object"
            return
        yield from (f"{name} has no {field!r}" for field, kind in fields.items() if kind["required"] and field not in body)
        yield from (f"{name} knows no {field!r}" for field in body if field not in fields)


def _differences(document: Mapping[str, Any], schema: Mapping[str, Any], value: object, at: str) -> Iterator[str]:
    """Stricter than JSON Schema: fields that a schema does not name are differences. Its `minLength` of arrays count elements."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{at} is no {kind} but {value!r:.80}"
        return
    if isinstance(value, str | list):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9):
            yield f"{at} is {len(value)} long, not {schema.get('minLength', 0)} to {schema.get('maxLength')}"
    elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at} = {value} is out of range"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _differences(document, schema.get("items", {}), item, f"{at}[{number}]")
    elif isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        yield from (f"{at} has no {name!r}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is None:
                yield f"{at} knows no {name!r}"
            elif inner is not True:
                yield from _differences(document, inner, item, f"{at}.{name}")


@lru_cache
def _yaml(file: Path) -> dict[str, Any]:
    """PyYAML comes with the parts of the tests that load models; it reads these files in some seconds, so once."""
    yaml = importlib.import_module("yaml")
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded
