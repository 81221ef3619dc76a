"""The database's own clock, in seconds since the epoch: all who share a ledger agree on it, whatever their own clocks say."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class database_time(FunctionElement[float]):  # noqa: N801 - SQL functions are written so
    """The time at which the statement runs, not that at which its transaction began."""

    type = Float()
    inherit_cache = True


@compiles(database_time, "sqlite")
def _sqlite(_element: database_time, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's own signature
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_time, "postgresql")
def _postgresql(_element: database_time, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's own signature
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
