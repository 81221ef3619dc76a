"""Writes in, batches of index actions out: within the vendor's limits, guarded by generations, each document's own failure looked at.

The service compares nothing: what is stored is read first, and what is newer is spared. Between the two another process may write a newer
generation, which this one then overwrites or deletes. Answers stay right all the same: a chunk's id is made of its text, the ledger says
which chunks are current, and retrieval asks it, and the access attributes that it holds, of every hit. What may be wrong is the
generation and the access columns of a row, or a row may be missing; `verify` finds that, and mends it.
"""

from __future__ import annotations

import io
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.models import AccessColumns, Row
from ragstore_azure.search.failures import BUSY, IndexMissingError, TooLargeError, translate
from ragstore_azure.search.reading import Reader
from ragstore_azure.search.recent import Recent
from ragstore_azure.search.schema import access_fields, to_document
from ragstore_azure.search.strings import key_of

if TYPE_CHECKING:
    from azure.search.documents.aio import SearchClient
    from azure.search.documents.models import IndexAction, IndexingResult

    from ragstore_azure.search.service import Service

MOST_ACTIONS: Final = 1_000
MOST_BYTES: Final = 16_000_000
"""Of a request; the vendor says 16 MB (https://learn.microsoft.com/azure/search/search-limits-quotas-capacity)."""
_NUMBER_BYTES: Final = 24
"""A component of a vector as JSON, with its comma, at most."""
_ACTION_BYTES: Final = 40
_STREAMED_BYTES: Final = 200_000
"""aiohttp warns at 1 MB."""
_GONE: Final = 404
_TOO_LARGE: Final = 413

Action = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Batch:
    """Carried out in the order of the fields: narrowed access first, deletions last, so that a crash never widens what is visible."""

    retags: dict[str, AccessColumns] = field(default_factory=dict)
    """By document id. The rows put before the retag have these columns already."""
    puts: dict[str, Row] = field(default_factory=dict)
    """By chunk id."""
    drops: list[DropRows | DropDocument] = field(default_factory=list)
    chunks: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The chunk ids in `puts` by document id."""

    def put(self, row: Row) -> None:
        """Add the row, unless a newer one of the same chunk is here."""
        present = self.puts.get(row.chunk_id)
        if present is None or present.generation <= row.generation:
            if present is not None:
                self.chunks[present.document_id].discard(row.chunk_id)
            self.puts[row.chunk_id] = row
            self.chunks[row.document_id].add(row.chunk_id)

    def retag(self, write: Retag) -> None:
        """Set the columns of stored rows later, and of the rows put so far now."""
        self.retags[write.document_id] = write.access
        for chunk_id in self.chunks.get(write.document_id, ()):
            self.puts[chunk_id] = replace(self.puts[chunk_id], access=write.access)


def batched(writes: Sequence[Write]) -> Iterator[Batch]:
    """The fewest batches that have the same effect as the writes in their order: what is put after a drop begins a new one."""
    batch, dropped = Batch(), set[str]()
    for write in writes:
        match write:
            case PutRows():
                for row in write.rows:
                    if row.document_id in dropped:
                        yield batch
                        batch, dropped = Batch(), set()
                    batch.put(row)
            case Retag():
                batch.retag(write)
            case DropRows() | DropDocument():
                batch.drops.append(write)
                dropped.add(write.document_id)
    if batch.retags or batch.puts or batch.drops:
        yield batch


class Writer:
    """Writes to one index."""

    def __init__(self, service: Service, *, reader: Reader, recent: Recent, batch_rows: int, batch_bytes: int) -> None:
        if not 0 < batch_rows <= MOST_ACTIONS or not 0 < batch_bytes <= MOST_BYTES:
            raise ConfigError(f"[store] batch_rows is 1 to {MOST_ACTIONS:,}, batch_bytes 1 to {MOST_BYTES:,}; the service takes no more")
        self._service = service
        self._reader = reader
        self._recent = recent
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes

    async def carry_out(self, batch: Batch) -> None:
        """Apply the batch. Raises `PoisonError` for a row that no request can hold, before anything is written."""
        self._check_sizes(batch.puts.values())
        if batch.retags:
            await self._retag(batch.retags)
        if batch.puts:
            await self._put(batch.puts)
        if batch.drops:
            await self._drop(batch.drops)

    async def _retag(self, access: Mapping[str, AccessColumns]) -> None:
        fields = {document: access_fields(columns) for document, columns in access.items()}
        stored = await self._reader.of_documents(list(access))
        stamp = time.time_ns()
        done = await self.send(
            {"@search.action": "merge", "key": key, "stamp": stamp, **fields[one.document_id]} for key, one in stored.items()
        )
        for key in done:
            self._recent.note(key, document_id=stored[key].document_id, generation=stored[key].generation, stamp=stamp)

    async def _put(self, puts: Mapping[str, Row]) -> None:
        rows = {key_of(chunk_id): row for chunk_id, row in puts.items()}
        stored = await self._reader.of_keys(list(rows))
        newest = [row for key, row in rows.items() if key not in stored or stored[key].generation <= row.generation]
        stamp = time.time_ns()
        done = await self.send({"@search.action": "upload", **to_document(row, stamp)} for row in newest)
        for key in done:
            self._recent.note(key, document_id=rows[key].document_id, generation=rows[key].generation, stamp=stamp)

    async def _drop(self, drops: Sequence[DropRows | DropDocument]) -> None:
        whole = [write.document_id for write in drops if isinstance(write, DropDocument)]
        named = {key_of(chunk_id) for write in drops if isinstance(write, DropRows) for chunk_id in write.chunk_ids}
        stored = await self._reader.of_documents(whole) | await self._reader.of_keys(list(named))
        doomed = set()
        by_document: defaultdict[str, set[str]] = defaultdict(set)
        for key, one in stored.items():
            by_document[one.document_id].add(key)
        for write in drops:
            mine = by_document[write.document_id]
            chosen = mine & set(map(key_of, write.chunk_ids)) if isinstance(write, DropRows) else mine
            doomed |= {key for key in chosen if stored[key].generation <= write.generation}
        stamp = time.time_ns()
        for key in await self.send({"@search.action": "delete", "key": key} for key in sorted(doomed)):
            self._recent.note(key, document_id=stored[key].document_id, generation=None, stamp=stamp)

    def _check_sizes(self, rows: Iterable[Row]) -> None:
        for row in rows:
            size = len(row.text) + sum(map(len, row.access.labels))  # each takes six bytes or more of JSON at worst
            if size * 12 > self._batch_bytes and _size({"@search.action": "upload", **to_document(row, 0)}) > self._batch_bytes:
                raise PoisonError(
                    "too_large", f"a chunk with its labels is more than {self._batch_bytes:,} bytes, which AI Search cannot take"
                )

    async def send(self, actions: Iterable[Action]) -> list[str]:
        """Carry out all of the actions, each of another key; the keys of those that had something to act on."""
        done: list[str] = []
        for some in self._portions(actions):
            done += await self._persist(some)
        return done

    def _portions(self, actions: Iterable[Action]) -> Iterator[list[Action]]:
        portion: list[Action] = []
        size = 0
        for action in actions:
            more = _size(action)
            if portion and (len(portion) == self._batch_rows or size + more > self._batch_bytes):
                yield portion
                portion, size = [], 0
            portion.append(action)
            size += more
        if portion:
            yield portion

    async def _persist(self, actions: list[Action]) -> list[str]:
        """One batch, of which those documents are sent again that were refused for now."""
        from azure.core.exceptions import AzureError

        patience, done, left = self._service.patience, list[str](), actions
        for number in itertools.count():
            answer = _Answer()
            asked: float | None
            try:
                results = await self._service.write(answer.of(left))
            except TooLargeError:
                if len(left) == 1:
                    raise PoisonError("too_large", f"{self._service.where} refuses a chunk for its size") from None
                middle = len(left) // 2
                return [*done, *await self._persist(left[:middle]), *await self._persist(left[middle:])]
            except AzureError as error:
                translated = translate(error, self._service.where)
                if isinstance(translated, IndexMissingError):  # created a moment ago, and not known everywhere yet
                    translated = TransientError(str(translated))
                if not isinstance(translated, TransientError) or not patience.goes_on(number, translated.retry_after):
                    raise translated from error
                asked = translated.retry_after
            else:
                done += [result.key for result in results if result.succeeded]
                failed = [result for result in results if not result.succeeded and result.status_code != _GONE]
                if not failed:
                    return done
                self._refuse(failed)
                asked = answer.retry_after
                if not patience.goes_on(number, asked):
                    raise TransientError(
                        f"{self._service.where} is too busy for {len(failed)} of {len(actions)} documents ({failed[0].status_code})",
                        retry_after=asked,
                    )
                again = {result.key for result in failed}
                left = [action for action in left if action["key"] in again]
            await patience.pause(number, asked)
        raise AssertionError("the loop returns or raises")

    def _refuse(self, failed: Sequence[IndexingResult]) -> None:
        for result in failed:
            if result.status_code not in BUSY:
                said = (result.error_message or "no reason given").splitlines()[0][:300]
                raise ConfigError(f"{self._service.where} refuses a document with {result.status_code}: {said}")


class _Answer:
    """What the SDK does not hand on of the answer to a batch.

    On 413 the SDK halves a batch by itself, and fails with a `TypeError` at the second half (azure-search-documents 12.0.0), so that is
    taken out of its hands; of an answer with failures of single documents it drops the headers.
    """

    def __init__(self) -> None:
        self.retry_after: float | None = None

    def of(self, actions: Sequence[Action]) -> Any:  # noqa: ANN401 - a coroutine function, which `Service.write` calls
        """The attempt to send these."""

        async def attempt(client: SearchClient) -> list[IndexingResult]:
            from azure.search.documents import IndexDocumentsBatch

            batch = IndexDocumentsBatch(actions=[_model(action) for action in actions])
            return await client.index_documents(batch, raw_request_hook=_streamed, raw_response_hook=self._seen)

        return attempt

    def _seen(self, response: Any) -> None:  # noqa: ANN401 - azure-core's PipelineResponse
        from ragstore_azure.errors import seconds_to_wait

        if response.http_response.status_code == _TOO_LARGE:
            raise TooLargeError("the request is too large")
        self.retry_after = seconds_to_wait(response.http_response.headers)


def _model(action: Action) -> IndexAction:
    """The action as the SDK wants it. Set name by name: its constructor looks for a date in every number of a vector, 4 ms for each row."""
    from azure.search.documents.models import IndexAction

    model = IndexAction()
    for name, value in action.items():
        model[name] = value
    return model


def _streamed(request: Any) -> None:  # noqa: ANN401 - azure-core's PipelineRequest
    """Hand a large body to aiohttp as a stream, which it wants so that sending one does not stop everything else."""
    body = request.http_request.content
    if isinstance(body, str | bytes) and len(body) > _STREAMED_BYTES:
        request.http_request.set_streamed_data_body(io.BytesIO(body.encode() if isinstance(body, str) else body))


def _size(action: Action) -> int:
    """Bytes as JSON, at most."""
    vector = action.get("vector", ())
    rest = {name: value for name, value in action.items() if name != "vector"}
    return len(json.dumps(rest)) + len(vector) * _NUMBER_BYTES + _ACTION_BYTES
