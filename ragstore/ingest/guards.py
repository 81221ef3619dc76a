"""Brakes that stop a pass before it does harm."""

from __future__ import annotations

from ragstore.config import GuardSettings
from ragstore.errors import GuardError


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
