"""ACLs of files and folders in, kept once each; all of them, and a version that changes with them, out."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from ragstore.ledger.bulk import batches, dialect_insert, upsert
from ragstore.ledger.connection import Connections
from ragstore.ledger.schema import acls, directories, settings
from ragstore.models import AccessAttributes, BlobId

_VERSION: Final = "acls_version"
_UNSEEN: Final = ""
"""The ACL of a folder that was never read, or is not there: it lets nobody through."""
_NEVER: Final = 0.0
"""When a folder was read that was only named so far."""
_GET_VERSION = select(settings.c.value).where(settings.c.key == _VERSION)  # asked for every hit: built once

Folder = tuple[str, str, str]
"""Account, container and path; the root's path is empty."""


class Acls:
    """The part of the ledger that ACLs are in: those of folders by path, those of files by what they say."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def version(self) -> str:
        """Another text whenever an ACL came, changed or went; empty where there never was one."""
        with self._connections.read() as connection:
            return connection.execute(_GET_VERSION).scalar_one_or_none() or ""

    def folders(self) -> list[tuple[str, str, str, str]]:
        """Account, container, path and ACL of every folder above a blob that has an ACL."""
        with self._connections.read() as connection:
            columns = (directories.c.account, directories.c.container, directories.c.path, directories.c.acl)
            return [(row[0], row[1], row[2], row[3]) for row in connection.execute(select(*columns)).all()]

    def files(self) -> list[str]:
        """Every ACL that a blob has or had."""
        with self._connections.read() as connection:
            return list(connection.execute(select(acls.c.acl)).scalars().all())

    def unseen(self, folders: Collection[Folder]) -> set[Folder]:
        """Those of these folders whose ACL was never read, or let nobody through because it was not there."""
        with self._connections.read() as connection:
            held = _held(connection, folders)
        return {folder for folder in folders if folder not in held or not held[folder][0]}

    def set_folders(self, found: Mapping[Folder, str], *, at: float) -> int:
        """Keep these ACLs, which one began to read at that moment (seconds since the epoch), but where a later one is known.

        Returns how many are others than before.
        """
        with self._connections.write() as connection:
            held = _held(connection, found)
            changed = {folder: acl for folder, acl in found.items() if _differs(held.get(folder), acl, at)}
            _put(connection, changed, at)
            return len(changed)

    def keep_folders(self, account: str, container: str, found: Mapping[str, str], *, at: float, listed_at: float) -> int:
        """As `set_folders`, of all folders of one container, by path: one that is not among them lets nobody through any more.

        One that came since `listed_at`, when the listing of which they are began, stays as it is. Returns how many are others than before.
        """
        place = (directories.c.account == account, directories.c.container == container)
        with self._connections.write() as connection:
            rows = connection.execute(select(directories.c.path, directories.c.acl, directories.c.seen_at).where(*place)).all()
            held = {row.path: (row.acl, row.seen_at) for row in rows}
            gone = [row for row in rows if row.path not in found and _NEVER < row.seen_at < listed_at]
            changed = {(account, container, path): acl for path, acl in found.items() if _differs(held.get(path), acl, at)}
            # First it denies, and only the next pass drops it: blobs below it may still be there, where a guard holds deletes back.
            changed |= {(account, container, row.path): _UNSEEN for row in gone if row.acl != _UNSEEN}
            _put(connection, changed, at)
            dropped = [_id((account, container, row.path)) for row in gone if row.acl == _UNSEEN]
            for some in batches(sorted(dropped), 500):
                connection.execute(delete(directories).where(directories.c.folder_id.in_(some)))
            if dropped:
                _renew_version(connection)
            connection.execute(update(directories).where(*place, directories.c.seen_at < at).values(seen_at=at))
            return len(changed)


def note_acls(connection: Connection, seen: Iterable[AccessAttributes]) -> None:
    """Have the ACLs of these blobs and every folder above them be known when the transaction ends, so that a filter can be exact.

    A folder that was never read is known as one that lets nobody through. Blobs without an ACL cost nothing.
    """
    with_acl = [(access, access.acl) for access in seen if access.acl is not None]
    if not with_acl:
        return
    texts = {hashlib.blake2b(acl.encode(), digest_size=8).hexdigest(): acl for _, acl in with_acl}
    folders = {(access.account, access.container, folder) for access, _ in with_acl for folder in _above(access.path)}
    new = sorted(texts.keys() - _known(connection, texts))
    unknown = sorted(folders - _held(connection, folders).keys())
    if new:
        connection.execute(
            dialect_insert(connection, acls).on_conflict_do_nothing(), [{"digest": digest, "acl": texts[digest]} for digest in new]
        )
    if unknown:
        connection.execute(
            dialect_insert(connection, directories).on_conflict_do_nothing(), [_row(folder, _UNSEEN, _NEVER) for folder in unknown]
        )
    if new or unknown:
        _renew_version(connection)


def _put(connection: Connection, changed: Mapping[Folder, str], at: float) -> None:
    if not changed:
        return
    insert = dialect_insert(connection, directories)
    renewed = {"acl": insert.excluded.acl, "seen_at": insert.excluded.seen_at}
    rows = [_row(folder, acl, at) for folder, acl in sorted(changed.items())]
    connection.execute(insert.on_conflict_do_update(index_elements=["folder_id"], set_=renewed), rows)
    _renew_version(connection)


def _renew_version(connection: Connection) -> None:
    """A random one: no two transactions write the same, and a count would have to be read first."""
    value = secrets.token_hex(8)
    connection.execute(upsert(connection, settings, ["key"], {"value": value}), [{"key": _VERSION, "value": value}])


def _known(connection: Connection, digests: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for some in batches(sorted(digests), 500):
        found.update(connection.execute(select(acls.c.digest).where(acls.c.digest.in_(some))).scalars().all())
    return found


def _held(connection: Connection, folders: Iterable[Folder]) -> dict[Folder, tuple[str, float]]:
    """ACL of each of these folders that is there, and when it was read."""
    by_id = {_id(folder): folder for folder in folders}
    columns = (directories.c.folder_id, directories.c.acl, directories.c.seen_at)
    found: dict[Folder, tuple[str, float]] = {}
    for some in batches(sorted(by_id), 500):
        rows = connection.execute(select(*columns).where(directories.c.folder_id.in_(some))).all()
        found.update((by_id[row.folder_id], (row.acl, row.seen_at)) for row in rows)
    return found


def _differs(held: tuple[str, float] | None, acl: str, at: float) -> bool:
    """Whether what one began to read at this moment is to be kept: what somebody read later, which may deny more, stays."""
    return held is None or (held[0] != acl and held[1] <= at)


def _row(folder: Folder, acl: str, at: float) -> dict[str, Any]:
    account, container, path = folder
    return {"folder_id": _id(folder), "account": account, "container": container, "path": path, "acl": acl, "seen_at": at}


def _id(folder: Folder) -> str:
    """A path may be longer than what PostgreSQL takes into an index."""
    account, container, path = folder
    return BlobId(account=account, container=container, path=path).document_id


def _above(path: str) -> Iterator[str]:
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
