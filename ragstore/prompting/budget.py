"""Ranked hits and a token limit in, the passages that fit into the rendered messages out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ragstore.models import Hit
from ragstore.prompting.sources import Passage, beginning, passages

_SHORTEST: Final = 80
"""Characters of a passage below which giving its beginning says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Messages, and what they cost."""

    contents: tuple[str, str]
    passages: tuple[Passage, ...] = ()
    tokens: int


@dataclass(slots=True, kw_only=True)
class Budget:
    """Fills a prompt up to `limit` tokens; `render` gives the messages for some passages with their number of tokens.

    What is counted is always the whole of the messages, never a sum of estimates: the limit holds for any template and tokenizer.
    """

    limit: int
    render: Callable[[Sequence[Passage]], Rendered]
    count: Callable[[str], int]
    _kept: list[Hit] = field(default_factory=list)

    def fill(self, hits: Sequence[Hit]) -> Rendered:
        """As many hits as fit, most relevant first; one that does not fit is skipped, and a later, shorter one may.

        Where not even one fits whole, the beginning of the best is given. Without any that can be shortened so far, or without hits, the
        result has no passages, and its tokens may be above the limit: the caller decides.
        """
        best = self.render(())
        if best.tokens > self.limit:
            return best
        for hit in hits:
            if self._kept and best.tokens + self.count(hit.text) // 2 > self.limit:
                continue  # far too long, unless it repeats what is there already: spare the rendering
            tried = self.render(passages([*self._kept, hit]))
            if tried.tokens <= self.limit:
                self._kept.append(hit)
                best = tried
        if not self._kept:
            shortened = self._shortened(hits)
            best = shortened or best
        return best

    def _shortened(self, hits: Sequence[Hit]) -> Rendered | None:
        """The longest beginning of the best hit that fits."""
        found: Rendered | None = None
        for passage in passages(hits[:1]):
            low, high = _SHORTEST, len(passage.text) - 1
            while low <= high:
                middle = (low + high) // 2
                tried = self.render([beginning(passage, middle)])
                if tried.tokens <= self.limit:
                    found, low = tried, middle + 1
                else:
                    high = middle - 1
        return found
