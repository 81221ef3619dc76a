"""Who may read what: access attributes and a principal in, columns, a filter and a decision out."""

from __future__ import annotations

from ragstore.access.explanation import Explanation, Reason
from ragstore.access.opening import open_policy
from ragstore.access.policy import GroupsPolicy, OpenPolicy, Policy, Scope
from ragstore.access.principals import LOCAL_PRINCIPAL, Principals, open_principals, principal_for

__all__ = [
    "LOCAL_PRINCIPAL",
    "Explanation",
    "GroupsPolicy",
    "OpenPolicy",
    "Policy",
    "Principals",
    "Reason",
    "Scope",
    "open_policy",
    "open_principals",
    "principal_for",
]
