"""A name in, the exclusive right to it out, for some seconds by the database's clock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, or_, select, true, update

from ragstore.ledger.bulk import dialect_insert
from ragstore.ledger.clock import database_time
from ragstore.ledger.connection import Connections
from ragstore.ledger.schema import leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to do what the name says until `expires_at`."""

    name: str
    owner: str
    token: int
    """Grows whenever the lease goes to somebody else, or was let expire: of two who believe they hold it, the one with more is right."""
    expires_at: float
    """Seconds since the epoch, by the database's clock."""


class Leases:
    """Leases of one owner. One that has expired goes to who asks next."""

    def __init__(self, connections: Connections, owner: str) -> None:
        """`owner` tells this process from all others that share the ledger."""
        self._connections = connections
        self.owner = owner

    def acquire(self, name: str, seconds: float) -> Lease | None:
        """Take it, or prolong it where it is held already; None while somebody else holds it."""
        with self._connections.write() as connection:
            row = {"name": name, "owner": self.owner, "expires_at": database_time() + seconds, "token": 1}
            statement = (
                dialect_insert(connection, leases)
                .values(**row)
                .on_conflict_do_update(
                    index_elements=["name"],
                    set_={"owner": self.owner, "expires_at": database_time() + seconds, "token": _next_token(self.owner)},
                    where=_free(self.owner),
                )
            )
            return _lease(connection.execute(statement.returning(*leases.c)).first())

    def acquire_some(self, names: Collection[str], limit: int, seconds: float) -> list[Lease]:
        """Take up to `limit` of these that are free, those already held first; none that another process is taking at this moment."""
        wanted = sorted(set(names))
        if not wanted or limit <= 0:
            return []
        rows = [{"name": name, "owner": "", "expires_at": 0.0, "token": 0} for name in wanted]
        with self._connections.write() as connection:
            connection.execute(dialect_insert(connection, leases).on_conflict_do_nothing(), rows)
            free = (
                select(leases.c.name)
                .where(leases.c.name.in_(wanted), _free(self.owner))
                .order_by(case((leases.c.owner == self.owner, 0), else_=1), leases.c.expires_at, leases.c.name)
                .limit(limit)
                .with_for_update(skip_locked=True)
            )
            taken = connection.execute(free).scalars().all()
            values = {"owner": self.owner, "expires_at": database_time() + seconds, "token": _next_token(self.owner)}
            statement = update(leases).where(leases.c.name.in_(taken)).values(**values).returning(*leases.c)
            got = [_lease(row) for row in connection.execute(statement).all()] if taken else []
        return sorted((lease for lease in got if lease), key=lambda lease: lease.name)

    def renew(self, lease: Lease, seconds: float) -> Lease | None:
        """The same for longer, with the same token; None where somebody else has had it since."""
        statement = update(leases).where(*_is(lease)).values(expires_at=database_time() + seconds).returning(*leases.c)
        with self._connections.write() as connection:
            return _lease(connection.execute(statement).first())

    def release(self, lease: Lease) -> None:
        """Let others have it at once; nothing happens where somebody else has it by now."""
        with self._connections.write() as connection:
            connection.execute(update(leases).where(*_is(lease)).values(owner="", expires_at=0.0))

    def holds(self, lease: Lease) -> bool:
        """Whether it is still this one's, now."""
        statement = select(true()).where(*_is(lease), leases.c.expires_at > database_time()).select_from(leases)
        with self._connections.read() as connection:
            return connection.execute(statement).first() is not None

    def owner_of(self, name: str) -> str | None:
        """Who holds it now."""
        statement = select(leases.c.owner).where(leases.c.name == name, leases.c.expires_at > database_time())
        with self._connections.read() as connection:
            return connection.execute(statement).scalar_one_or_none()


def _is(lease: Lease) -> tuple[Any, ...]:
    return leases.c.name == lease.name, leases.c.owner == lease.owner, leases.c.token == lease.token


def _free(owner: str) -> Any:  # noqa: ANN401 - SQLAlchemy's expressions have no common public type
    return or_(leases.c.owner == owner, leases.c.expires_at <= database_time())


def _next_token(owner: str) -> Any:  # noqa: ANN401 - as above
    """The same while it is held: whoever held it without a break has missed nothing."""
    kept = (leases.c.owner == owner) & (leases.c.expires_at > database_time())
    return case((kept, leases.c.token), else_=leases.c.token + 1)


def _lease(row: Any) -> Lease | None:  # noqa: ANN401 - a row of any shape
    return None if row is None else Lease(name=row.name, owner=row.owner, token=row.token, expires_at=row.expires_at)
