"""An embedder in, its conformance proved: subclass `EmbedderSuite` and give it a fixture named `embedder`.

    class TestMyEmbedder(EmbedderSuite):
        @pytest.fixture
        def embedder(self) -> MyEmbedder:
            return MyEmbedder()

The tests are coroutines: run pytest with pytest-asyncio and `asyncio_mode = "auto"`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from ragstore.contracts import Embedder

ODD_TEXTS = (
    "\U0001f511\U0001f3fd\u200d\U0001f680 \U0001f1e9\U0001f1ea",  # emoji with joiners and modifiers
    "a\0b\x01\x7f\x85",  # control characters
    "before \ud83d after",  # a lone surrogate, which has no UTF-8
    "x" * 10_000,  # no place to break
    "שלום עולם، مرحبا بالعالم",  # right to left
    "Z\u0351\u036b\u0343a\u0329l\u0349g\u034eo\u0321",  # stacked combining marks
    "\ufeff\u200b\u00ad\u2060.",  # almost nothing but invisible characters
    "[CLS] [SEP] [PAD] [MASK] [UNK] <|endoftext|> <s>",  # the tokens of tokenizers, as text
    "{{ 7 * 7 }} %s %(x)s \\ \" ' ; -- ",
)


class EmbedderSuite:
    """What every embedder must do. Raise `tolerance` only where vectors depend on the batch by design, and say why."""

    tolerance: ClassVar[float] = 1e-5
    """Largest difference in any component between two computations of one text."""
    texts: ClassVar[tuple[str, ...]] = (
        "The key is rotated every ninety days.",
        "Short.",
        "An invoice is due thirty days after it was received, unless the contract says otherwise. " * 8,
        "Bananas are yellow, and so are lemons.",
        "A middling sentence that has somewhat more words than the short one has.",
    )

    async def test_there_is_one_normalised_row_per_text(self, embedder: Embedder) -> None:
        """Shape (texts, dimensions), float32, Euclidean length 1."""
        vectors = await embedder.embed(self.texts, purpose="document")
        assert vectors.shape == (len(self.texts), embedder.dimensions)
        assert vectors.dtype == np.float32
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-3)

    async def test_rows_come_in_the_order_of_the_texts(self, embedder: Embedder) -> None:
        """Sorting by length must not show: reversed texts give reversed rows."""
        forward = await embedder.embed(self.texts, purpose="document")
        backward = await embedder.embed(self.texts[::-1], purpose="document")
        assert np.abs(forward - backward[::-1]).max() <= self.tolerance

    async def test_a_vector_does_not_depend_on_its_batch(self, embedder: Embedder) -> None:
        """Padding and neighbours must not show: the vector cache holds one vector per text."""
        together = await embedder.embed(self.texts, purpose="document")
        for text, vector in zip(self.texts, together, strict=True):
            alone = await embedder.embed([text], purpose="document")
            assert np.abs(alone[0] - vector).max() <= self.tolerance

    async def test_equal_texts_have_equal_vectors_and_others_have_not(self, embedder: Embedder) -> None:
        """Twice the same text in one call, and one other."""
        first, second, other = await embedder.embed([self.texts[0], self.texts[0], self.texts[3]], purpose="document")
        assert np.abs(first - second).max() <= self.tolerance
        assert np.abs(first - other).max() > 0.01

    async def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        """An empty call is free and keeps the number of columns."""
        vectors = await embedder.embed([], purpose="document")
        assert vectors.shape == (0, embedder.dimensions)
        assert embedder.count_tokens([]) == []

    async def test_more_texts_than_a_batch_holds_are_batched_inside(self, embedder: Embedder) -> None:
        """The caller knows no limit."""
        texts = [f"Sentence number {number}." for number in range(300)]
        vectors = await embedder.embed(texts, purpose="document")
        some = await embedder.embed(texts[250:252], purpose="document")
        assert vectors.shape[0] == len(texts)
        assert np.abs(vectors[250:252] - some).max() <= self.tolerance

    async def test_a_query_finds_the_document_that_answers_it(self, embedder: Embedder) -> None:
        """Both purposes live in one space."""
        documents = await embedder.embed(self.texts, purpose="document")
        query = await embedder.embed(["How often is the key rotated?"], purpose="query")
        assert query.shape == (1, embedder.dimensions)
        assert int((documents @ query[0]).argmax()) == 0

    async def test_odd_texts_have_finite_normalised_vectors(self, embedder: Embedder) -> None:
        """Nothing that a parser can let through may crash an indexing run."""
        vectors = await embedder.embed(ODD_TEXTS, purpose="document")
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-3)

    async def test_a_text_at_the_limit_is_embedded(self, embedder: Embedder) -> None:
        """A chunk of as many tokens as `count_tokens` and `max_tokens` allow is not refused."""
        words = ["word"] * embedder.max_tokens
        while embedder.count_tokens([" ".join(words)])[0] > embedder.max_tokens - 2:
            del words[-max(1, len(words) // 50) :]
        assert (await embedder.embed([" ".join(words)], purpose="document")).shape == (1, embedder.dimensions)

    async def test_of_a_longer_text_in_letters_that_it_does_not_know_the_beginning_is_embedded(self, embedder: Embedder) -> None:
        """An embedder that names its scripts gets chunks of others that are longer than its limit, and must not refuse them."""
        if embedder.scripts is None or "CYRILLIC" in embedder.scripts:
            pytest.skip("no letters are known that this embedder does not know")
        vectors = await embedder.embed(["слова из букв " * embedder.max_tokens, "a word"], purpose="document")
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-3)

    def test_token_counts_grow_with_the_text(self, embedder: Embedder) -> None:
        """Each text is counted by itself, without special tokens, and beyond the limit as well."""
        short, long = "some words", "some words " * (embedder.max_tokens + 1)
        counts = embedder.count_tokens([short, long, short])
        assert counts[0] == counts[2]
        assert 1 <= counts[0] < embedder.max_tokens < counts[1]

    def test_odd_texts_can_be_counted(self, embedder: Embedder) -> None:
        """One count per text, never negative."""
        counts = embedder.count_tokens(ODD_TEXTS)
        assert len(counts) == len(ODD_TEXTS)
        assert min(counts) >= 0

    def test_it_says_what_it_is(self, embedder: Embedder) -> None:
        """The fingerprint is the key of the vector cache: one line, not empty, the same whenever it is read."""
        assert embedder.fingerprint
        assert embedder.fingerprint == embedder.fingerprint.strip()
        assert "\n" not in embedder.fingerprint
        assert embedder.dimensions > 0
        assert embedder.max_tokens > 0
        assert embedder.price_per_million_tokens is None or embedder.price_per_million_tokens >= 0
        assert embedder.scripts is None or embedder.scripts == {script.upper() for script in embedder.scripts}
        assert embedder.unrelated_cosine is None or -1 <= embedder.unrelated_cosine < 1
