"""A schema and a collection in, SQL with their quoted names out: the one place where a name becomes SQL; a value never does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ragstore.errors import ConfigError

Precision = Literal["f32", "f16"]

_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_COLLECTION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,54}")
_HOLE: Final = re.compile(r"\{(\w+)\}")

REGISTRY: Final = "ragstore_collections"
"""The table that says with which version of the tables below each collection was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the statements of one collection are filled with."""

    schema: str
    collection: str
    dimensions: int
    precision: Precision
    extension: str = "public"
    """The schema that pgvector was installed in."""

    def __post_init__(self) -> None:
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigError(
                f"[store] schema = {self.schema!r} must be one name of lower-case letters, digits and _, not starting with pg_"
            )
        if not _COLLECTION.fullmatch(self.collection) or self.collection == REGISTRY:
            raise ConfigError(
                f"the collection name {self.collection!r} may hold at most 55 letters, digits, '_', '-' and '.', and starts with none of "
                "the last two"
            )

    @property
    def table(self) -> str:
        """The table of the chunks, quoted; also what `to_regclass` wants."""
        return self.named("table")

    def named(self, table: str) -> str:
        """One of the collection's tables, quoted: `table`, `access`, `vectors` or `strays`. No name of a collection has a colon."""
        return f'"{self.schema}"."{self.collection}{"" if table == "table" else f":{table}"}"'

    @property
    def kind(self) -> str:
        """The type of the vectors, without its schema and dimensions."""
        return "vector" if self.precision == "f32" else "halfvec"

    def sql(self, template: str, **parts: str) -> bytes:
        """The statement, filled in: `{table}` and the other tables, `{vector}` (the type), `{cosine}` (its distance) and so on.

        `parts` are pieces of SQL that were put together from constants; values travel beside the statement, as parameters.
        """
        extension = '"' + self.extension.replace('"', '""') + '"'
        known = {
            **{table: self.named(table) for table in ("table", "access", "vectors", "strays", "earlier")},
            "former": f'"{self.collection}:earlier"',
            "schema": f'"{self.schema}"',
            "registry": f'"{self.schema}"."{REGISTRY}"',
            "vector": f"{extension}.{self.kind}",
            "sized": f"{extension}.{self.kind}({self.dimensions:d})",
            "sent": f"{extension}.{self.kind}_send",
            "cosine": f"OPERATOR({extension}.<=>)",
            "differs": f"OPERATOR({extension}.<>)",
            "by_cosine": f"{extension}.{self.kind}_cosine_ops",
            "staging": f'pg_temp."ragstore_put_2_{self.dimensions:d}_{self.precision}"',  # by version: a pooler may hand it on
            **parts,
        }
        return _HOLE.sub(lambda hole: known[hole[1]], template).encode()
