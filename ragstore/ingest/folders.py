"""A listing in; the ACLs of the folders above its blobs, in the ledger, out (ADLS Gen2, mode `azure`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from functools import partial

from ragstore.access.acl import folders_above
from ragstore.contracts import AclSource, Source
from ragstore.errors import ConfigError, TransientError
from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Plan
from ragstore.models import BlobState

Place = tuple[str, str]
"""Account and container."""


def folders_of(states: Iterable[BlobState]) -> dict[Place, set[str]]:
    """Every folder above a blob that has an ACL, by container; of one without any such blob nothing."""
    found: dict[Place, set[str]] = {}
    for state in states:
        if state.access.acl is not None:
            found.setdefault((state.id.account, state.id.container), set()).update(folders_above(state.id.path))
    return found


async def acl_source(parts: Parts, source: Source) -> AclSource | None:
    """The source as one of ACLs, where access rests on them.

    Raises `ConfigError` where `max_age_hours` is not set: no event tells of a changed ACL, so a pass that fails to run would leave what
    was taken away readable for ever.
    """
    if parts.policy.mode != "azure" or not isinstance(source, AclSource) or not await source.hierarchical():
        return None
    if parts.settings.access.max_age_hours is None:
        raise ConfigError(
            f"{source.account}/{source.container} has a hierarchical namespace, whose ACLs change without any event: set [access] "
            "max_age_hours = 48 (so long an answer may rest on attributes that nobody has looked at again), and list more often than that"
        )
    return source


def acl_reads(parts: Parts) -> int:
    """How many ACLs the sources have asked for one by one so far."""
    return sum(source.acl_reads for source in parts.sources if isinstance(source, AclSource))


async def refresh_folders(parts: Parts, plan: Plan) -> int:
    """Read the ACL of every folder above the listed blobs, each once; what changed is one small write, and no row of the store.

    Returns how many changed. Raises `TransientError` where one cannot be read now: then the ledger keeps what it had.
    """
    changed = 0
    for source in parts.sources:
        reader = await acl_source(parts, source)
        if reader is None:
            continue
        began = time.time()
        found = await _read(reader, source, plan.folders.get((source.account, source.container), set()))
        keep = partial(parts.ledger.acls.keep_folders, at=began, listed_at=plan.baseline.looked_at)
        changed += await asyncio.to_thread(keep, source.account, source.container, found)
    return changed


async def read_new_folders(parts: Parts, states: Iterable[BlobState]) -> None:
    """Read the ACLs of those folders above these blobs that are not known yet, so that a new folder need not wait for the next listing.

    Raises as `refresh_folders` does.
    """
    for (account, container), paths in folders_of(states).items():
        source = next((one for one in parts.sources if (one.account, one.container) == (account, container)), None)
        reader = await acl_source(parts, source) if source is not None else None
        if source is None or reader is None:
            continue
        began = time.time()
        unseen = await asyncio.to_thread(parts.ledger.acls.unseen, list(_named(account, container, paths)))
        if unseen:
            found = await _read(reader, source, {path for _, _, path in unseen})
            acls = {(account, container, path): acl for path, acl in found.items()}
            await asyncio.to_thread(parts.ledger.acls.set_folders, acls, at=began)


async def _read(reader: AclSource, source: Source, folders: set[str]) -> dict[str, str]:
    try:
        return dict(await reader.folder_acls(folders)) if folders else {}
    except TransientError as error:
        raise TransientError(
            f"the ACLs of the folders of {source.container!r} could not all be read, so the index keeps those that it had: {error}",
            retry_after=error.retry_after,
        ) from error


def _named(account: str, container: str, paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    yield from ((account, container, path) for path in sorted(paths))
