"""A reranker in, its conformance proved: subclass `RerankerSuite` and give it a fixture named `reranker`, new for each test.

    class TestMyReranker(RerankerSuite):
        @pytest.fixture
        async def reranker(self) -> AsyncIterator[MyReranker]:
            made = MyReranker()
            yield made
            await made.close()

The tests are coroutines: run pytest with pytest-asyncio and `asyncio_mode = "auto"`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import ClassVar

import pytest

from ragstore.contracts import Reranker
from ragstore.testing.embedders import ODD_TEXTS


class RerankerSuite:
    """What every reranker must do. Raise `tolerance` only where scores depend on the batch by design, and say why."""

    tolerance: ClassVar[float] = 1e-4
    """Largest difference between two scores of one text for one query."""
    query: ClassVar[str] = "How often is the key rotated?"
    texts: ClassVar[tuple[str, ...]] = (
        "Bananas are yellow, and so are lemons.",
        "The key is rotated every ninety days.",
        "Short.",
        "An invoice is due thirty days after it was received, unless the contract says otherwise. " * 8,
        "A middling sentence that has somewhat more words than the short one has.",
    )
    answer: ClassVar[int] = 1
    """Which of the texts answers the query."""

    async def test_there_is_one_finite_score_per_text(self, reranker: Reranker) -> None:
        """A list of plain numbers, which JSON can carry."""
        scores = await reranker.rerank(self.query, self.texts)
        assert len(scores) == len(self.texts) == len(json.loads(json.dumps(scores)))
        assert all(map(math.isfinite, scores))

    async def test_no_texts_give_no_scores(self, reranker: Reranker) -> None:
        """An empty call is free."""
        assert await reranker.rerank(self.query, []) == []

    async def test_scores_come_in_the_order_of_the_texts(self, reranker: Reranker) -> None:
        """Services answer best first, and models sort by length: neither must show."""
        forward = await reranker.rerank(self.query, self.texts)
        backward = await reranker.rerank(self.query, self.texts[::-1])
        self._same(forward, backward[::-1])

    async def test_the_text_that_answers_has_the_highest_score(self, reranker: Reranker) -> None:
        """Higher is better."""
        scores = await reranker.rerank(self.query, self.texts)
        assert scores.index(max(scores)) == self.answer

    async def test_the_same_call_gives_the_same_scores(self, reranker: Reranker) -> None:
        """Otherwise hits would change their places while somebody pages through them."""
        self._same(await reranker.rerank(self.query, self.texts), await reranker.rerank(self.query, self.texts))

    async def test_a_score_does_not_depend_on_the_other_texts(self, reranker: Reranker) -> None:
        """Nor on their number: scores of two batches must be comparable."""
        together = await reranker.rerank(self.query, self.texts)
        alone = [(await reranker.rerank(self.query, [text]))[0] for text in self.texts]
        self._same(together, alone)

    async def test_equal_texts_have_equal_scores(self, reranker: Reranker) -> None:
        """Twice the same text in one call."""
        first, _, second = await reranker.rerank(self.query, [self.texts[1], self.texts[0], self.texts[1]])
        self._same([first], [second])

    async def test_more_texts_than_a_batch_holds_are_batched_inside(self, reranker: Reranker) -> None:
        """The caller knows no limit."""
        texts = [f"Sentence number {number} is about something else." for number in range(1_100)]
        texts[777] = self.texts[self.answer]
        scores = await reranker.rerank(self.query, texts)
        assert len(scores) == len(texts)
        assert scores.index(max(scores)) == 777
        self._same(scores[776:779], await reranker.rerank(self.query, texts[776:779]))

    async def test_odd_texts_have_finite_scores(self, reranker: Reranker) -> None:
        """Nothing that a parser can let through may cost a search its order: control characters with NUL, half characters, any script."""
        scores = await reranker.rerank(self.query, ODD_TEXTS)
        assert len(scores) == len(ODD_TEXTS)
        assert all(map(math.isfinite, scores))

    @pytest.mark.parametrize("query", [*ODD_TEXTS, "How often? " * 5_000], ids=range(len(ODD_TEXTS) + 1))
    async def test_odd_queries_give_finite_scores(self, reranker: Reranker, query: str) -> None:
        """People paste anything."""
        scores = await reranker.rerank(query, self.texts)
        assert len(scores) == len(self.texts)
        assert all(map(math.isfinite, scores))

    async def test_a_text_beyond_every_limit_is_cut_and_not_refused(self, reranker: Reranker) -> None:
        """Its beginning counts; the texts beside it have their scores as ever."""
        long = self.texts[self.answer] + " " + "Nothing of interest follows. " * 50_000
        scores = await reranker.rerank(self.query, [*self.texts, long])
        assert math.isfinite(scores[-1])
        self._same(scores[:-1], await reranker.rerank(self.query, self.texts))

    async def test_calls_at_the_same_time_do_not_mix(self, reranker: Reranker) -> None:
        """Several people search at once."""
        questions = [(f"{self.query} {number}", self.texts[number % 3 :]) for number in range(8)]
        together = await asyncio.gather(*(reranker.rerank(query, texts) for query, texts in questions))
        for (query, texts), scores in zip(questions, together, strict=True):
            self._same(scores, await reranker.rerank(query, texts))

    async def test_it_can_be_closed_more_than_once(self, reranker: Reranker) -> None:
        """After use, and by whoever else thinks that it is theirs."""
        await reranker.rerank(self.query, self.texts)
        await reranker.close()
        await reranker.close()

    def _same(self, first: Sequence[float], second: Sequence[float]) -> None:
        assert list(first) == pytest.approx(list(second), abs=self.tolerance)
