"""An approximate index in, the rows that it does not find out: kept beside it, and compared by every search that asks the index.

HNSW is a graph, in which rows that resemble only each other can become an island: no search arrives there, however far it goes on, and
nothing says so. Real texts have such islands (a document of near copies, a rare topic). So each vector is looked for by itself, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ragstore_pgvector.estimates import INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.names import Names

_AT_ONCE: Final = 2_000
_NEAR: Final = 1e-5
"""Its distance from itself, or a copy of it, but for rounding. A vector of zeros has none, and is not in the index."""

_GROWN: Final = 1.2
"""Times as many ids as when all were looked for: what is added takes the place of others in their neighbours' lists."""

_STATE: Final = (
    f"SELECT {INDEX}, (SELECT coalesce(max(id), 0) FROM {{vectors}}), (SELECT file FROM {{strays}} WHERE id = 0), "
    "(SELECT upto FROM {strays} WHERE id = 0), (SELECT upto FROM {strays} WHERE id = -1)"
)
# Less thorough than any search is: who is found then is found later. `enable_seqscan`: it is the index that is asked.
_SETTINGS: Final = (
    b"SELECT set_config('hnsw.ef_search', '40', true), set_config('hnsw.iterative_scan', 'off', true), "
    b"set_config('enable_seqscan', 'off', true)"
)
_LOOK: Final = (
    "INSERT INTO {strays} (id, upto, file) SELECT id, id, %s FROM {vectors} AS one WHERE id > %s AND id <= %s AND NOT EXISTS "
    "(SELECT 1 FROM (SELECT other.vector {cosine} one.vector AS distance FROM {vectors} AS other "
    f"ORDER BY other.vector {{cosine}} one.vector LIMIT 1) AS nearest WHERE nearest.distance < {_NEAR}) ON CONFLICT (id) DO NOTHING"
)
_DONE: Final = (
    "INSERT INTO {strays} (id, upto, file) VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET upto = excluded.upto, file = excluded.file"
)


async def look(connection: Connection, names: Names) -> None:
    """Look for every vector that is not looked for yet; for all of them where many were added, or the index was made anew.

    Nobody asks an index before its rows were looked for.
    """
    ((file, last, looked, upto, all_upto),) = await _all(connection, names.sql(_STATE), (names.named("vectors"),))
    if file is None or file != looked:
        await connection.execute(names.sql("DELETE FROM {strays}"))
    if file is None or (file == looked and last == upto):
        return
    first = upto if file == looked and last <= _GROWN * all_upto else 0
    for start in range(first, last, _AT_ONCE):
        async with connection.transaction():
            await connection.execute(_SETTINGS)
            await connection.execute(names.sql(_LOOK), (file, start, min(start + _AT_ONCE, last)))
    await connection.execute(names.sql("DELETE FROM {strays} WHERE id > 0 AND id NOT IN (SELECT id FROM {vectors})"))
    for marker in (-1, 0) if first == 0 else (0,):
        await connection.execute(names.sql(_DONE), (marker, last, file))


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
