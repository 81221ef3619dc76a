"""Turns of conversations in; kept in a SQLite file, by whose they are and with the chunks that each answer was made of, out.

Documents are never kept here: a turn is the words of the user, the words of the model, and ids. Who reads them again asks first whether
the chunks may still be read (`readable`), because the model's words may repeat what they say.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from ragstore.errors import ConfigError, OutageError

Given = ParamSpec("Given")
Found = TypeVar("Found")

MOST_CONVERSATIONS: Final = 500
"""Of one principal."""
MOST_TURNS: Final = 200
MOST_BYTES: Final = 2**20
"""Of the words of one conversation, in UTF-8. One that is full is never shortened: what later turns rest on would be lost."""
_DAY: Final = 86_400.0
_WAIT: Final = 10.0
"""Seconds for which another process, or another request, may hold the file."""
_AT_ONCE: Final = 4
"""Threads that wait for the file. Where somebody holds it, they wait, and nobody else does who only searches."""
_MAKING: Final = threading.Lock()
"""Held while the file is made, before anything else is done with it. A process that closes a database file by itself loses the locks that
SQLite holds on it, in whatever thread, and then overwrites what other processes write: https://sqlite.org/howtocorrupt.html, 2.2."""
_DOCUMENT_DIGITS: Final = 8
"""The first digits of a chunk's id are those of its document's; see `ragstore.models.chunk_id`."""
_VERSION: Final = 1
_SCHEMA: Final = f"""
CREATE TABLE conversations (id TEXT PRIMARY KEY, owner TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL);
CREATE INDEX conversations_by_owner ON conversations (owner, used);
CREATE INDEX conversations_by_use ON conversations (used);
CREATE TABLE turns (
  conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  at REAL NOT NULL,
  question TEXT NOT NULL,
  answer TEXT NOT NULL,
  cited TEXT NOT NULL,  -- JSON: [[number, chunk id], ...]
  after TEXT NOT NULL,  -- JSON: numbers of the turns that stood before the question
  PRIMARY KEY (conversation, number)
);
CREATE TABLE sources (
  conversation TEXT NOT NULL, number INTEGER NOT NULL, chunk TEXT NOT NULL,
  FOREIGN KEY (conversation, number) REFERENCES turns (conversation, number) ON DELETE CASCADE
);
CREATE INDEX sources_by_turn ON sources (conversation, number);
CREATE INDEX sources_by_chunk ON sources (chunk);
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A question and its answer."""

    number: int = 0
    """From 1; given by the file."""
    at: float = 0.0
    """Seconds since the epoch; given by the file."""
    question: str
    answer: str
    cited: tuple[tuple[int, str], ...] = ()
    """What the numbers in the answer point to, by chunk id."""
    chunks: tuple[str, ...] = ()
    """All that the prompt held, cited or not."""
    after: tuple[int, ...] = ()
    """The earlier turns that the prompt held: what they say, this answer may say again."""

    @property
    def size(self) -> int:
        """Bytes of its words."""
        return len(self.question.encode()) + len(self.answer.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one principal asked and was answered, oldest first."""

    id: str
    created: float
    """Seconds since the epoch, as all moments here."""
    used: float
    turns: tuple[Turn, ...] = ()

    @property
    def full(self) -> bool:
        """Whether no turn can be added any more."""
        return len(self.turns) >= MOST_TURNS or sum(turn.size for turn in self.turns) >= MOST_BYTES

    @property
    def chunks(self) -> frozenset[str]:
        """All chunks that its answers were made of."""
        return frozenset(chunk for turn in self.turns for chunk in turn.chunks)

    def readable(self, chunks: Collection[str]) -> tuple[Turn, ...]:
        """The turns that rest on nothing but these chunks, neither by their own sources nor by those of turns before them."""
        kept: dict[int, Turn] = {}
        for turn in self.turns:
            if all(chunk in chunks for chunk in turn.chunks) and all(number in kept for number in turn.after):
                kept[turn.number] = turn
        return tuple(kept.values())


class Conversations:
    """All conversations of one index. Methods block for a millisecond or two, and may be called from any thread and several processes.

    - The file is made with the first conversation, for its owner alone; what is deleted is overwritten in it.
    - `keep_days`: a conversation that was not used for so long is gone.
    - Every method raises `OutageError` where the file cannot be read or written, `ConfigError` where it is of a newer ragstore.
    """

    def __init__(self, file: Path, *, keep_days: float, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._keep = keep_days * _DAY
        self._clock = clock
        self._threads = ThreadPoolExecutor(_AT_ONCE, "conversations")

    async def aside(self, method: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """What a method of this object gives, without holding up anybody: neither this thread, nor those that others' work waits for."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(method, *given, **named))

    @property
    def keep(self) -> float:
        """Seconds that a conversation is kept after it was used."""
        return self._keep

    def begin(self, owner: str) -> Conversation | None:
        """A new conversation; None where its owner has as many as one may have."""
        now = self._clock()
        made = Conversation(id=f"conv_{secrets.token_hex(16)}", created=now, used=now)
        with self._writing(make=True) as connection:
            if connection is None:
                return None
            self._expire(connection)
            if connection.execute("SELECT count(*) FROM conversations WHERE owner = ?", (owner,)).fetchone()[0] >= MOST_CONVERSATIONS:
                return None
            connection.execute("INSERT INTO conversations VALUES (?, ?, ?, ?)", (made.id, owner, now, now))
        return made

    def all(self, owner: str) -> list[Conversation]:
        """Those of one principal, without their turns, the one used last first."""
        with self._reading() as connection:
            if connection is None:
                return []
            query = "SELECT id, created, used FROM conversations WHERE owner = ? AND used >= ? ORDER BY used DESC, id"
            rows = connection.execute(query, (owner, self._clock() - self._keep)).fetchall()
        return [Conversation(id=name, created=created, used=used) for name, created, used in rows]

    def find(self, owner: str, name: str) -> Conversation | None:
        """One of them with its turns; None for one that is not there, and for that of another principal."""
        with self._reading() as connection:
            found = self._owned(connection, owner, name) if connection is not None else None
            if connection is None or found is None:
                return None
            turns = connection.execute("SELECT * FROM turns WHERE conversation = ? ORDER BY number", (name,)).fetchall()
            chunks: dict[int, list[str]] = {}
            for number, chunk in connection.execute("SELECT number, chunk FROM sources WHERE conversation = ?", (name,)):
                chunks.setdefault(number, []).append(chunk)
        return Conversation(id=name, created=found[0], used=found[1], turns=tuple(_turn(row, chunks.get(row[1], ())) for row in turns))

    def add(self, owner: str, name: str, turn: Turn) -> bool:
        """Put a turn at the end, whatever its number says. False where there is no such conversation any more, or no room in it."""
        now = self._clock()
        with self._writing() as connection:
            if connection is None or self._owned(connection, owner, name) is None:
                return False
            size = "coalesce(sum(length(CAST(question AS BLOB)) + length(CAST(answer AS BLOB))), 0)"
            query = f"SELECT count(*), {size}, coalesce(max(number), 0) FROM turns WHERE conversation = ?"  # noqa: S608 - no text of others
            turns, held, last = connection.execute(query, (name,)).fetchone()
            if turns >= MOST_TURNS or held + turn.size > MOST_BYTES:
                return False
            row = (name, last + 1, now, turn.question, turn.answer, json.dumps(turn.cited), json.dumps(turn.after))
            connection.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            sources = [(name, last + 1, chunk) for chunk in dict.fromkeys(turn.chunks)]
            connection.executemany("INSERT INTO sources VALUES (?, ?, ?)", sources)
            connection.execute("UPDATE conversations SET used = ? WHERE id = ?", (now, name))
            self._expire(connection)
        return True

    def delete(self, owner: str, name: str) -> bool:
        """Forget one, whoever it was; False where there is none of this owner's."""
        with self._writing() as connection:
            if connection is None or self._owned(connection, owner, name) is None:
                return False
            connection.execute("DELETE FROM conversations WHERE id = ?", (name,))
        return True

    def expire(self) -> None:
        """Forget those that were not used for too long. `begin` and `add` do so as well."""
        with self._writing() as connection:
            if connection is not None:
                self._expire(connection)

    # For the erasure of a blob, whoever asked of it.

    def count(self, document_id: str) -> int:
        """How many turns were made of chunks of this document, of whatever version."""
        with self._reading() as connection:
            return len(_made_of(connection, document_id)) if connection is not None else 0

    def erase(self, document_id: str) -> int:
        """Forget these turns, and those that had them before their question. Returns how many.

        A chunk's id says its document by 8 digits: of 100,000 documents another one has the same with a chance of 1 in 43,000, and loses
        its turns too.
        """
        with self._writing() as connection:
            if connection is None:
                return 0
            gone = _made_of(connection, document_id)
            for name in {name for name, _ in gone}:
                for number, after in connection.execute("SELECT number, after FROM turns WHERE conversation = ? ORDER BY number", (name,)):
                    if any((name, earlier) in gone for earlier in json.loads(after)):
                        gone.add((name, number))
            connection.executemany("DELETE FROM turns WHERE conversation = ? AND number = ?", sorted(gone))
            return len(gone)

    @property
    def files(self) -> list[Path]:
        """Where they are, as far as anything is there."""
        return [file for file in (self._file, Path(f"{self._file}-journal")) if file.exists()]

    def _expire(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM conversations WHERE used < ?", (self._clock() - self._keep,))

    def _owned(self, connection: sqlite3.Connection, owner: str, name: str) -> tuple[float, float] | None:
        query = "SELECT created, used FROM conversations WHERE id = ? AND owner = ? AND used >= ?"
        found: tuple[float, float] | None = connection.execute(query, (name, owner, self._clock() - self._keep)).fetchone()
        return found

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """One state of the file; None where there is none."""
        with self._opened(make=False) as connection:
            if connection is not None:
                connection.execute("BEGIN")
            yield connection

    @contextmanager
    def _writing(self, *, make: bool = False) -> Iterator[sqlite3.Connection | None]:
        """All of it or nothing; one at a time, in whatever process."""
        with self._opened(make=make) as connection:
            if connection is None:
                yield None
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _opened(self, *, make: bool) -> Iterator[sqlite3.Connection | None]:
        try:
            with _MAKING:
                there = self._file.exists()
                if make and not there:
                    _make(self._file)
            if not make and not there:
                yield None
                return
            with closing(sqlite3.connect(self._file, timeout=_WAIT, isolation_level=None)) as connection:
                # Deleted rows leave their bytes in the file otherwise: https://sqlite.org/pragma.html#pragma_secure_delete
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("PRAGMA foreign_keys = ON")
                _prepare(connection, self._file)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise OutageError(
                f"the conversations in {str(self._file)!r} cannot be read or written ({error}); mend the file, or move it away"
            ) from error


def _make(file: Path) -> None:
    """An empty file, because what people asked is nobody else's: SQLite would let others read it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another process was here first
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    """Make the tables in a new file. Raises `ConfigError` for one of a newer ragstore."""
    if (version := _version(connection)) == 0:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) == 0:  # nobody else has, while we waited
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")
    elif version > _VERSION:
        raise ConfigError(f"the conversations in {str(file)!r} were written by a newer ragstore; upgrade ragstore")


def _version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _made_of(connection: sqlite3.Connection, document_id: str) -> set[tuple[str, int]]:
    first = document_id[:_DOCUMENT_DIGITS]
    query = "SELECT DISTINCT conversation, number FROM sources WHERE chunk >= ? AND chunk < ?"
    return {*connection.execute(query, (first, first + "g")).fetchall()}  # `g` is behind every hex digit


def _turn(row: tuple[str, int, float, str, str, str, str], chunks: Sequence[str]) -> Turn:
    _, number, at, question, answer, cited, after = row
    return Turn(
        number=number,
        at=at,
        question=question,
        answer=answer,
        cited=tuple((mark, chunk) for mark, chunk in json.loads(cited)),
        chunks=tuple(chunks),
        after=tuple(json.loads(after)),
    )
