"""An index of the fake of Pinecone: records by namespace, a log of writes that become readable after a while, documented limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tests.fakes import pinecone_filter
from tests.fakes.pinecone_errors import Refused

LARGEST_METADATA: Final = 40_960
_LARGEST_ANSWER: Final = 4 * 2**20
_LONGEST_ID: Final = 512

Records = dict[str, dict[str, Any]]
Operation = Callable[[Records], None]


@dataclass(slots=True)
class Space:
    """A namespace: what was written, and what of it can be read."""

    latest: Records = field(default_factory=dict)
    readable: Records = field(default_factory=dict)
    waiting: list[tuple[float, int, Operation]] = field(default_factory=list)
    indexed: int = 0

    def write(self, operation: Operation, lsn: int) -> None:
        operation(self.latest)
        self.waiting.append((time.monotonic(), lsn, operation))

    def read(self, delay: float) -> Records:
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] + delay <= now:
            _, self.indexed, operation = self.waiting.pop(0)
            operation(self.readable)
        return self.readable


class FakeIndex:
    """A serverless index of dense vectors. Every method takes a request as JSON and gives the answer's JSON, or raises `Refused`."""

    def __init__(self, name: str, dimension: int, metric: str = "cosine") -> None:
        self.name, self.dimension, self.metric = name, dimension, metric
        self.delay = 0.0
        """Seconds until a write can be read."""
        self.spaces: dict[str, Space] = {}
        self.lsn = 0

    def upsert(self, body: Mapping[str, Any], *, only: int | None = None) -> dict[str, Any]:
        """`only` so many of the records, where the fake fails in part."""
        vectors = body["vectors"]
        if not 1 <= len(vectors) <= 1_000:
            raise Refused(f"the number of vectors is {len(vectors)}, not 1 to 1000")
        for one in vectors:
            self._check_id(one["id"])
            self._check_values(one.get("values"))
            check_metadata(one.get("metadata") or {})
        # The body was read for this request alone, so what is in it is nobody else's.
        kept = [{**one, "values": np.array(one["values"], np.float32).tolist()} for one in vectors[:only]]

        def operation(records: Records) -> None:
            records.update({one["id"]: one for one in kept})

        self._write(body.get("namespace", ""), operation)
        return {"upsertedCount": len(kept)}

    def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if ("id" in body) == ("filter" in body):
            raise Refused("either id or filter must be given")
        if "filter" in body:
            raise Refused("this fake updates by id only")
        self._check_id(body["id"])
        changed = body.get("setMetadata") or {}
        check_metadata(changed)
        stored = self._space(body.get("namespace", "")).latest.get(body["id"])
        if stored is not None:
            check_metadata({**stored.get("metadata", {}), **changed})

        def operation(records: Records) -> None:
            before = records.get(body["id"])
            if before is not None:
                values = body.get("values", before["values"])
                records[body["id"]] = {**before, "values": values, "metadata": {**before.get("metadata", {}), **changed}}

        self._write(body.get("namespace", ""), operation)
        return {}

    def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        chosen = [name for name in ("ids", "deleteAll", "filter") if body.get(name)]
        if len(chosen) != 1:
            raise Refused("exactly one of ids, deleteAll and filter must be given")
        name = body.get("namespace", "")
        if name not in self.spaces or not self.spaces[name].latest:
            raise Refused("Namespace not found", status=404, code=5)
        ids = frozenset(body.get("ids", []))
        if len(body.get("ids", [])) > 1_000:
            raise Refused("at most 1000 ids can be deleted at once")
        if "filter" in body:
            pinecone_filter.check(body["filter"])

        def operation(records: Records) -> None:
            for identity in ids or list(records):
                if identity not in records:
                    continue
                metadata = records[identity].get("metadata", {})
                if body.get("deleteAll") or identity in ids or ("filter" in body and pinecone_filter.matches(body["filter"], metadata)):
                    del records[identity]

        self._write(name, operation)
        return {}

    def fetch(self, ids: list[str], namespace: str) -> dict[str, Any]:
        if not 1 <= len(ids) <= 1_000:
            raise Refused("1 to 1000 ids can be fetched at once")
        records = self._read(namespace)
        found = {identity: records[identity] for identity in ids if identity in records}
        return {"vectors": found, "namespace": namespace, "usage": {"readUnits": 1}}

    def listed(self, *, prefix: str, limit: int, token: str | None, namespace: str) -> dict[str, Any]:
        if not 1 <= limit <= 100:
            raise Refused("limit must be between 1 and 100")
        ids = sorted(identity for identity in self._read(namespace) if identity.startswith(prefix) and identity > (token or ""))
        answer: dict[str, Any] = {"vectors": [{"id": one} for one in ids[:limit]], "namespace": namespace, "usage": {"readUnits": 1}}
        if len(ids) > limit:
            answer["pagination"] = {"next": ids[limit - 1]}
        return answer

    def query(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not 1 <= body["topK"] <= 10_000:
            raise Refused("topK must be between 1 and 10000")
        self._check_values(body.get("vector"))
        admitted = list(self._read(body.get("namespace", "")).values())
        if "filter" in body:
            pinecone_filter.check(body["filter"])
            admitted = [one for one in admitted if pinecone_filter.matches(body["filter"], one.get("metadata", {}))]
        vectors = np.array([one["values"] for one in admitted], np.float64).reshape(-1, self.dimension)
        query = np.array(body["vector"], np.float64)
        cosines = vectors @ query / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)) if admitted else np.empty(0)
        best = sorted(range(len(admitted)), key=lambda number: (-cosines[number], admitted[number]["id"]))[: body["topK"]]
        matches = [self._match(admitted[number], float(cosines[number]), body) for number in best]
        answer = {"matches": matches, "namespace": body.get("namespace", ""), "usage": {"readUnits": 1}}
        if len(json.dumps(answer)) > _LARGEST_ANSWER:
            raise Refused("the answer is larger than 4MB", code=11)
        return answer

    def stats(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if "filter" in body:
            raise Refused("Serverless indexes do not support describing index stats with metadata filtering", code=12)
        counts = {name: len(self._read(name)) for name in list(self.spaces)}
        return {
            "namespaces": {name: {"vectorCount": count} for name, count in counts.items() if count},
            "dimension": self.dimension,
            "indexFullness": 0.0,
            "totalVectorCount": sum(counts.values()),
            "metric": self.metric,
            "vectorType": "dense",
        }

    def records(self, namespace: str) -> Records:
        """What can be read of a namespace now, for tests that take away from it."""
        return self._read(namespace)

    def indexed(self, namespace: str) -> int:
        """How much of a namespace's log can be read."""
        space = self._space(namespace)
        space.read(self.delay)
        return space.indexed

    def _match(self, record: Mapping[str, Any], score: float, body: Mapping[str, Any]) -> dict[str, Any]:
        match: dict[str, Any] = {"id": record["id"], "score": score, "values": record["values"] if body.get("includeValues") else []}
        if body.get("includeMetadata") and "metadata" in record:
            match["metadata"] = record["metadata"]
        return match

    def _space(self, name: str) -> Space:
        return self.spaces.setdefault(name, Space())

    def _read(self, name: str) -> Records:
        return self._space(name).read(self.delay)

    def _write(self, name: str, operation: Operation) -> None:
        self.lsn += 1
        self._space(name).write(operation, self.lsn)

    def _check_id(self, identity: str) -> None:
        if not 1 <= len(identity) <= _LONGEST_ID or not identity.isascii() or "\0" in identity:
            raise Refused(f"the id {identity[:80]!r} is not valid")

    def _check_values(self, values: list[float] | None) -> None:
        if values is None or len(values) != self.dimension:
            raise Refused(f"Vector dimension {len(values or [])} does not match the dimension of the index {self.dimension}")
        if not any(values):
            raise Refused("Dense vectors must contain at least one non-zero value")


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raises `Refused` for what Pinecone does not hold."""
    for name, value in metadata.items():
        if name.startswith("$"):
            raise Refused(f"the metadata key {name!r} starts with $")
        if isinstance(value, list):
            if not value or not all(isinstance(one, str) for one in value):
                raise Refused(f"the metadata list {name!r} is empty, or holds more than strings")
        elif not isinstance(value, str | int | float | bool):
            raise Refused(f"the metadata value of {name!r} must be a string, number, boolean or list of strings, got {value!r:.40}")
    size = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
    if size > LARGEST_METADATA:
        raise Refused(f"metadata size is {size} bytes, which exceeds the limit of {LARGEST_METADATA} bytes per vector")
