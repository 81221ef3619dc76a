"""A listing and the ledger in, the changes between them out: upsert, retag, delete, unchanged. Moves are found when content is read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ragstore.ledger import Failure, KnownBlob
from ragstore.models import BlobState

Reason = Literal["new", "changed", "pipeline", "again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One blob to be read (or only its attributes, for a retag)."""

    state: BlobState
    """As the listing saw it: a hint. What is applied is what the blob is when it is read."""
    known: KnownBlob | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the ledger holds, against which a listing is compared."""

    known: Mapping[str, KnownBlob]
    failures: Mapping[str, Failure]
    pipeline: str
    """Fingerprint of parser, chunker and embedder: chunks that another one made are made again."""
    looked_at: float = field(default_factory=time.time)
    """When the listing began, in seconds since the epoch: attributes that somebody saw since count more than those that it shows."""
    policy_changed: bool
    """Access columns were derived under another policy: every blob is looked at, and retagged where its columns differ."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What has to be done so that the index is in step with the listing."""

    upserts: list[Planned] = field(default_factory=list)
    retags: list[Planned] = field(default_factory=list)
    deletes: list[KnownBlob] = field(default_factory=list)
    too_large: list[Planned] = field(default_factory=list)
    deferred: list[Planned] = field(default_factory=list)
    blobs: int = 0
    unchanged: int = 0
    baseline: Baseline
    waiting: int = 0
    """In quarantine, and not changed since."""
    folders: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By account and container, every folder above a listed blob that has an ACL; the root is the empty path."""
    acl_reads: int = 0
    """ACLs that the listing had to ask for one by one."""

    @property
    def surely_gone(self) -> list[KnownBlob]:
        """The deletes that are half of no move, because nothing of their size has come."""
        come = {planned.state.size for planned in self.upserts}
        return [known for known in self.deletes if known.size not in come]

    @property
    def likely_moves(self) -> int:
        """How many deletes could be the old half of a move, judged by size alone: only reading the new half can tell."""
        gone = Counter(known.size for known in self.deletes if known.serves)
        come = Counter(planned.state.size for planned in self.upserts if planned.reason == "new")
        return (gone & come).total()


def compare(listing: Iterable[BlobState], baseline: Baseline, *, limits: Mapping[tuple[str, str], int]) -> Plan:
    """The changes that lead from the ledger to the listing, which must be complete: what it lacks is deleted.

    `limits` are the largest sizes in bytes that are read, by account and container.
    """
    plan = Plan(baseline=baseline)
    seen: set[str] = set()
    for state in listing:
        document_id = state.id.document_id
        if document_id in seen:
            continue
        seen.add(document_id)
        limit = limits[state.id.account, state.id.container]
        _classify(plan, state, baseline.known.get(document_id), baseline.failures.get(document_id), limit)
    plan.blobs = len(seen)
    plan.deletes = [known for document_id, known in baseline.known.items() if document_id not in seen and known.state != "deleted"]
    return plan


def _classify(plan: Plan, state: BlobState, known: KnownBlob | None, failure: Failure | None, limit: int) -> None:
    baseline = plan.baseline
    same = known is not None and known.etag == state.etag
    if failure and failure.kind != "transient" and failure.etag == state.etag and failure.pipeline == baseline.pipeline:
        plan.waiting += not failure.dismissed
    elif state.archived and not (same and known and known.serves):
        plan.deferred.append(Planned(state=state, known=known, reason="changed"))
    elif state.size > limit:
        plan.too_large.append(Planned(state=state, known=known, reason="changed"))
    elif known is None or not known.serves:
        plan.upserts.append(Planned(state=state, known=known, reason="new"))
    elif not same or known.state == "stale" or known.content_type != state.content_type:
        plan.upserts.append(Planned(state=state, known=known, reason="changed" if not same else "again"))
    elif known.pipeline != baseline.pipeline:
        plan.upserts.append(Planned(state=state, known=known, reason="pipeline"))
    elif baseline.policy_changed or {known.access, known.current_access} != {state.access.to_json()}:
        plan.retags.append(Planned(state=state, known=known, reason="changed"))
    else:
        plan.unchanged += 1
