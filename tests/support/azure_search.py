"""A fake of Azure AI Search in; stores that talk to it, and give up sooner than a person would, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import override

from ragstore.contracts import Write
from ragstore_azure.search import AzureSearchStore
from ragstore_azure.search.failures import Patience

KEY_VARIABLE: Final = "SEARCH_KEY"

Open = Callable[..., AzureSearchStore]
"""Options of the store in, all of them with a default; `kind` is the class."""


class HastyStore(AzureSearchStore):
    """Tries three times, and waits a second at most."""

    patience = Patience(attempts=3, first_pause=0.01, longest_pause=1.0)


class WaitingStore(HastyStore):
    """As somebody who waits after each write until the service shows it."""

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        await super().apply(writes)
        await self.settle()
