"""Why a principal can or cannot read a blob, as values; for whoever may see the policy, never for whoever was refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ragstore.access.conditions.tracing import Clause

Outcome = Literal["grants", "denies", "nothing", "passes", "stops"]
"""Of a reason by itself. ACLs pass or stop, from the root to the blob: only where all of them pass, they grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that was looked at, and what it does to the decision."""

    kind: Literal["mode", "list", "assignment", "deny assignment", "acl"]
    name: str
    """Which one: where it stands in its file, or the path that an ACL belongs to."""
    outcome: Outcome
    why: str
    """In a sentence."""
    via: str | None = None
    """By what it concerns the principal: `the principal itself`, `group ID` or `everyone`."""
    role: str | None = None
    scope: str | None = None
    covers: bool | None = None
    """Whether the blob lies in the scope."""
    condition: str | None = None
    """As it is written."""
    clause: Clause | None = None
    """The condition taken apart, with the values it saw; only where the scope covers the blob."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, without what does not apply."""
        fields = {
            "kind": self.kind,
            "name": self.name,
            "outcome": self.outcome,
            "why": self.why,
            "via": self.via,
            "role": self.role,
            "scope": self.scope,
            "covers": self.covers,
            "condition": self.condition,
            "clause": self.clause.as_dict() if self.clause else None,
        }
        return {key: value for key, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision and everything that was looked at for it."""

    principal: str
    """Its id."""
    blob: str
    """`container/path`."""
    mode: str
    allowed: bool
    why: str
    """In a sentence."""
    reasons: tuple[Reason, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "principal": self.principal,
            "blob": self.blob,
            "mode": self.mode,
            "allowed": self.allowed,
            "why": self.why,
            "reasons": [reason.as_dict() for reason in self.reasons],
        }
