"""A blob of the index and principals in; who of them can be shown its chunks now, and why, out. It passes the same rules as every hit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ragstore.access.explanation import Explanation
from ragstore.access.policy import Policy
from ragstore.errors import ConfigError
from ragstore.ledger import KnownBlob
from ragstore.ledger.documents import Documents
from ragstore.models import AccessAttributes, Principal

_NOT_SERVED = {
    "new": "it is not indexed yet",
    "quarantined": "it is in quarantine (see: ragstore failures)",
    "deferred": "it is archived, and waits for rehydration",
    "deleted": "it is deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether a principal is shown a blob's chunks now; for whoever may see the policy, never for whoever was refused."""

    shown: bool
    why: str
    """In a sentence."""
    explanation: Explanation
    """By the blob's current attributes."""
    as_read: Explanation | None = None
    """By the attributes with which its content was read, where those are others: both must grant."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **self.explanation.as_dict(),
            "shown": self.shown,
            "why": self.why,
            "as_read": self.as_read.as_dict() if self.as_read else None,
        }


def find(documents: Documents, name: str) -> KnownBlob:
    """The one blob of the index that the name means: `container/path`, or `account/container/path`. Raises `ConfigError`."""
    meant = documents.named(name)
    alive = [known for known in meant if known.state != "deleted"] or meant
    if not alive:
        raise ConfigError(f"the index knows no blob {name!r}; write its name as search shows it, CONTAINER/PATH")
    if len(alive) > 1:
        names = ", ".join(repr(f"{known.id.account}/{known.id.name}") for known in alive)
        raise ConfigError(f"{name!r} means several blobs; name one of {names}")
    return alive[0]


def standing(known: KnownBlob, policy: Policy, principal: Principal, *, fresh: bool = True) -> Standing:
    """Why this principal is or is not shown the blob. `fresh` says whether its attributes are young enough to grant anything."""
    explanation = policy.explain(principal, AccessAttributes.from_json(known.current_access))
    as_read = None
    if known.access != known.current_access:
        as_read = policy.explain(principal, AccessAttributes.from_json(known.access))
    shown, why = explanation.allowed, explanation.why
    if shown and as_read is not None and not as_read.allowed:
        shown, why = False, f"now it may be read, but its content was read before that, and so long as it is not read again: {as_read.why}"
    if shown and not fresh:
        shown, why = False, "nobody looked at its attributes for longer than [access] max_age_hours; run: ragstore index --access-only"
    if not known.serves:
        shown, why = False, f"nobody is shown it: {_NOT_SERVED[known.state]}"
    return Standing(shown=shown, why=why, explanation=explanation, as_read=as_read)


def readers(known: KnownBlob, policy: Policy, principals: Iterable[Principal], *, fresh: bool = True) -> list[tuple[Principal, bool]]:
    """Each of these principals, and whether it is shown the blob."""
    attributes = [AccessAttributes.from_json(text) for text in sorted({known.access, known.current_access})]
    serves = known.serves and fresh
    return [(one, serves and all(policy.grants(one, each) for each in attributes)) for one in principals]


def contents(documents: Documents, policy: Policy, principal: Principal, *, is_fresh: Callable[[KnownBlob], bool]) -> dict[str, list[str]]:
    """The blobs that a principal is shown, by name, with the ids of their chunks in document order; by name sorted."""
    known = sorted(documents.known().values(), key=lambda one: (one.id.name, one.id.account))
    shown = [one for one in known if any(may for _, may in readers(one, policy, [principal], fresh=is_fresh(one)))]
    chunks = documents.chunks_of([one.document_id for one in shown])
    found: dict[str, list[str]] = {}
    for one in shown:
        found.setdefault(one.id.name, []).extend(record.chunk_id for record in chunks[one.document_id])
    return found
