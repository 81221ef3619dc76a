"""The schema of an Avro file in; a Python function that reads just the wanted fields of its records out.

The function is generated for the schema: it steps over what is not wanted by its length, without making objects of it. Measured against
fastavro, whose C code makes all of a record, it takes half the time (`tests/benchmarks/change_feed.py`), and it needs no package.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

FIELD_BYTES: Final = 16 * 2**20
"""The longest text that is believed; a longer length is damage, or an attack on memory."""
_DEPTH: Final = 24
_LINES: Final = 20_000
_ONE_BYTE: Final = 128

Row = tuple[
    bytes | None, str | None, bytes | None, str | None, bytes | None, bytes | None, str | None, "tuple[bytes, ...] | None", bytes | None
]
"""subject, eventType, eventTime, data.api, data.etag, data.sequencer, data.blobTier, keys of data.blobPropertiesUpdated, and
data.previousInfo (a map of texts as it is in the file, see `read_map`). None for what the schema does not have, or holds null."""

Decode = Callable[[bytes, int, int], tuple[list[Row], int]]
"""Bytes, where to begin and the number of records in; rows and where they end out. Raises `DamagedError` or `IndexError`."""

_Want = Literal["text", "symbol", "keys", "raw"]
_WANTED: Final[Mapping[str, _Want]] = {
    "subject": "text",
    "eventType": "symbol",
    "eventTime": "text",
    "data.api": "symbol",
    "data.etag": "text",
    "data.sequencer": "text",
    "data.blobTier": "symbol",
    "data.blobPropertiesUpdated": "keys",
    "data.previousInfo": "raw",
}


class DamagedError(Exception):
    """These bytes are not what their format says."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint and where it ends. It may be longer than needed: the service pads those of blocks to 10 bytes.

    Raises `IndexError` where the data end within it, and `DamagedError` where it has more than 10 bytes.
    """
    value = shift = 0
    while shift < 70:  # noqa: PLR2004 - 10 bytes of 7 bits
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < _ONE_BYTE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise DamagedError("a number has more than 10 bytes")


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """The length of a text, and where the text begins."""
    length, at = read_long(data, at)
    if not 0 <= length <= FIELD_BYTES:
        raise DamagedError(f"a field of {length} bytes, where {FIELD_BYTES} is the limit")
    return length, at


def read_map(data: bytes) -> dict[str, str]:
    """A map of texts, as a row holds it."""
    found: dict[str, str] = {}
    at = 0
    while True:
        count, at = _doubled_count(data, at)
        if not count:
            return found
        for _entry in range(count >> 1):
            key, at = _take(data, at)
            value, at = _take(data, at)
            found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")


@lru_cache(maxsize=32)
def compile_decoder(schema_text: bytes) -> Decode:
    """The function for the records of this schema. Raises `DamagedError` for what is no schema of records."""
    try:
        schema = json.loads(schema_text)
    except ValueError as error:
        raise DamagedError("the schema is not JSON") from error
    writer = _Writer()
    writer.function(schema)
    # No text of the schema gets into the code: names become numbers and positions in tuples.
    code = compile("\n".join(writer.lines), "<avro decoder>", "exec")
    names: dict[str, Any] = {
        "S": _short_skips(),
        "L": _long_skips(),
        "K": _skip,
        "T": _take,
        "Z": read_long,
        "M": _doubled_count,
        "F": _symbol,
        "D": DamagedError,
        **{f"E{number}": symbols for number, symbols in enumerate(writer.enums)},
    }
    exec(code, names)  # noqa: S102 - as dataclasses and namedtuple do; see above for what is in the code
    decode: Decode = names["decode"]
    return decode


def _skip(data: bytes, at: int) -> int:
    length, begin = read_length(data, at)
    return begin - at + length


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_length(data, at)
    return data[at : at + length], at + length


def _doubled_count(data: bytes, at: int) -> tuple[int, int]:
    """The number of entries of a part of a map or array, times two as the one-byte form has it. A negative one is followed by a size."""
    count, at = read_long(data, at)
    if count < 0:
        _size, at = read_long(data, at)
        count = -count
    if count > len(data):
        raise DamagedError(f"{count} entries in {len(data)} bytes")
    return count << 1, at


def _symbol(symbols: Sequence[str], index: int) -> str:
    return symbols[index << 1] if 0 <= index < _ONE_BYTE // 2 else f"?{index}"


@lru_cache(maxsize=1)
def _short_skips() -> tuple[int, ...]:
    """By the first byte of a text's length: the size of length and text together, or 0 where one byte does not tell."""
    return tuple(1 + (byte >> 1) if byte < _ONE_BYTE and not byte & 1 else 0 for byte in range(256))


@lru_cache(maxsize=1)
def _long_skips() -> array[int]:
    """The same by the first two bytes, the second one times 256; 0 where two bytes do not tell."""
    skips = array("H", bytes(2 * 65536))
    for second in range(_ONE_BYTE):
        for first in range(_ONE_BYTE, 256, 2):
            skips[first | second << 8] = 2 + ((first & 127 | second << 7) >> 1)
    return skips


class _Writer:
    """Writes the function. In it, `d` are the data, `p` is the position, `v0` ... are the wanted values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.enums: list[tuple[str, ...]] = []
        self._named: dict[str, Any] = {}
        self._found: set[str] = set()

    def function(self, schema: object) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise DamagedError("the schema is not that of a record")
        self.value(schema, depth=0, indent=2, path="", namespace="")
        targets = [f"v{number}" for number in range(len(_WANTED))]
        missing = [target for path, target in zip(_WANTED, targets, strict=True) if path not in self._found]
        self.lines = [
            "def decode(d, p, count, S=S, L=L):",
            " rows = []",
            " add = rows.append",
            *(f" {target} = None" for target in missing),
            " for _ in range(count):",
            *self.lines,
            f"  add(({', '.join(targets)}))",
            " return rows, p",
        ]

    def value(self, schema: Any, *, depth: int, indent: int, path: str | None, namespace: str) -> None:  # noqa: ANN401 - JSON
        """Code that passes over one value, and keeps it where it is wanted. `path` is None within what is not wanted."""
        if depth > _DEPTH or len(self.lines) > _LINES:
            raise DamagedError("the schema is nested too deep, or too large")
        if isinstance(schema, str) and schema in self._named:
            schema, namespace = self._named[schema]
        elif isinstance(schema, str) and f"{namespace}.{schema}" in self._named:
            schema, namespace = self._named[f"{namespace}.{schema}"]
        if isinstance(schema, list):
            self._union(schema, depth=depth, indent=indent, path=path, namespace=namespace)
            return
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            self.value(kind, depth=depth + 1, indent=indent, path=path, namespace=namespace)
            return
        if isinstance(schema, dict) and "name" in schema:
            namespace = self._register(schema, namespace)
        want = _WANTED.get(path) if path is not None else None
        if kind in {"record", "error"}:
            for field in schema.get("fields", ()):
                inner = None if path is None or not isinstance(field, dict) else f"{path}.{field.get('name')}".lstrip(".")
                self.value(field.get("type"), depth=depth + 1, indent=indent, path=inner, namespace=namespace)
        elif kind in {"map", "array"}:
            self._entries(schema, kind=kind, depth=depth, indent=indent, path=path, namespace=namespace)
        elif kind == "enum":
            self._enum(schema, indent=indent, target=self._target(path) if want == "symbol" else None)
        elif kind in {"string", "bytes"}:
            self._text(indent=indent, target=self._target(path) if want in {"text", "symbol"} else None, decode=want == "symbol")
        else:
            self._add(indent, *_fixed_skip(kind, schema))

    def _target(self, path: str | None) -> str:
        assert path is not None  # noqa: S101 - only what has a path is wanted
        self._found.add(path)
        return f"v{list(_WANTED).index(path)}"

    def _add(self, indent: int, *lines: str) -> None:
        self.lines += [" " * indent + line for line in lines]

    def _register(self, schema: Mapping[str, Any], namespace: str) -> str:
        name = str(schema["name"])
        full, own = name, namespace
        if "." in name:
            own = name.rpartition(".")[0]
        else:
            own = str(schema.get("namespace") or namespace)
            full = f"{own}.{name}" if own else name
        self._named[full] = self._named[name] = (schema, own)
        return own

    def _union(self, branches: Sequence[Any], *, depth: int, indent: int, path: str | None, namespace: str) -> None:
        if path in _WANTED:
            self._add(indent, f"{self._target(path)} = None")
        if len(branches) == 2 and branches[0] == "null":  # noqa: PLR2004 - as all unions are that were seen
            self._add(indent, "if not d[p]: p += 1", "elif d[p] == 2:", " p += 1")
            self.value(branches[1], depth=depth + 1, indent=indent + 1, path=path, namespace=namespace)
        else:
            self._add(indent, "u, p = Z(d, p)")
            for number, branch in enumerate(branches):
                self._add(indent, f"{'if' if number == 0 else 'elif'} u == {number}:", " pass")
                self.value(branch, depth=depth + 1, indent=indent + 1, path=path, namespace=namespace)
        if branches:
            self._add(indent, "else: raise D('a branch of a union that the schema does not have')")

    def _entries(self, schema: Mapping[str, Any], *, kind: str, depth: int, indent: int, path: str | None, namespace: str) -> None:
        want = _WANTED.get(path) if path is not None and kind == "map" else None
        keys = want == "keys"
        raw = want == "raw" and schema.get("values") == "string"
        if keys:
            self._add(indent, "k = []")
        if raw:
            self._add(indent, "m = p")
        self._add(indent, "while True:", " c = d[p]", " if not c:", "  p += 1", "  break")
        self._add(indent, " if c > 127 or c & 1: c, p = M(d, p)", " else: p += 1", " for _e in range(c >> 1):")
        if kind == "map":
            if keys:
                self._add(indent + 2, "n, p = T(d, p)", "k.append(n)")
            else:
                self._text(indent=indent + 2, target=None, decode=False)
        self._add(indent + 2, "pass")
        self.value(schema.get("values" if kind == "map" else "items"), depth=depth + 1, indent=indent + 2, path=None, namespace=namespace)
        if keys:
            self._add(indent, f"{self._target(path)} = tuple(k)")
        if raw:
            self._add(indent, f"{self._target(path)} = d[m:p]")

    def _enum(self, schema: Mapping[str, Any], *, indent: int, target: str | None) -> None:
        if target is None:
            self._add(indent, *_LONG)
            return
        symbols = [str(symbol) for symbol in schema.get("symbols", ())]
        table = tuple(symbols[byte >> 1] if not byte & 1 and byte >> 1 < len(symbols) else f"?{byte >> 1}" for byte in range(_ONE_BYTE))
        self.enums.append(table)
        name = f"E{len(self.enums) - 1}"
        self._add(indent, "b = d[p]", f"if b < 128: {target} = {name}[b]; p += 1", f"else: b, p = Z(d, p); {target} = F({name}, b)")

    def _text(self, *, indent: int, target: str | None, decode: bool) -> None:
        if target is None:
            self._add(indent, "p += S[d[p]] or L[d[p] | d[p + 1] << 8] or K(d, p)")
            return
        self._add(indent, "n = S[d[p]]", f"if n: {target} = d[p + 1:p + n]; p += n", "else:", " n = L[d[p] | d[p + 1] << 8]")
        self._add(indent, f" if n: {target} = d[p + 2:p + n]; p += n", f" else: {target}, p = T(d, p)")
        if decode:
            self._add(indent, f"{target} = {target}.decode('utf-8', 'replace')")


_LONG: Final = ("while d[p] > 127: p += 1", "p += 1")


def _fixed_skip(kind: object, schema: Mapping[str, Any] | str) -> tuple[str, ...]:
    """Code that passes over a value that is no text and has no parts."""
    match kind:
        case "null":
            return ()
        case "boolean":
            return ("p += 1",)
        case "int" | "long":
            return _LONG
        case "float":
            return ("p += 4",)
        case "double":
            return ("p += 8",)
        case "fixed" if isinstance(schema, dict) and isinstance(schema.get("size"), int) and 0 <= schema["size"] <= FIELD_BYTES:
            return (f"p += {schema['size']}",)
        case _:
            raise DamagedError(f"the schema has a type {kind!r}, which Avro does not have")
