"""Brakes that stop a pass before it does harm."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ragstore.config import GuardSettings
from ragstore.contracts import Source
from ragstore.errors import GuardError
from ragstore.ledger import Ledger

_LOCATIONS = "locations"


def check_deletes(deletes: int, *, known: int, limits: GuardSettings) -> None:
    """Raise `GuardError` where so many of the known blobs would go that the listing is more likely wrong than the blobs gone.

    Both limits must be passed: a share alone would stop every small index, a number alone every large one.
    """
    if deletes > limits.delete_count and deletes > limits.delete_share * known:
        raise GuardError(
            f"{deletes} of {known} indexed blobs are missing in the listing, more than the guard lets go "
            f"({limits.delete_share:.0%} and more than {limits.delete_count}); nothing was deleted. "
            "See what it is with: ragstore plan. If the blobs are really gone: ragstore index --allow-mass-delete"
        )


def check_locations(ledger: Ledger, sources: Sequence[Source]) -> None:
    """Raise `GuardError` where a container's name stands for another place than when it was indexed: two folders may share a name."""
    known = json.loads(ledger.setting(_LOCATIONS) or "{}")
    for source in sources:
        before = known.get(f"{source.account}/{source.container}", source.location)
        if before != source.location:
            raise GuardError(
                f"{source.container!r} was indexed from {before!r}, and is {source.location!r} now: "
                "what only the first holds would be deleted. "
                'If it was moved: ragstore index --allow-mass-delete. If these are two, give one of them another name: container = "NAME"'
            )


def remember_locations(ledger: Ledger, sources: Sequence[Source]) -> None:
    """Note where each container was found by a pass."""
    known = json.loads(ledger.setting(_LOCATIONS) or "{}")
    now = {**known, **{f"{source.account}/{source.container}": source.location for source in sources}}
    if now != known:
        ledger.set_setting(_LOCATIONS, json.dumps(now, sort_keys=True))
