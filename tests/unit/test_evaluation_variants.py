"""Words of `--compare` in; how to ask, or what is wrong with them, out."""

from __future__ import annotations

import pytest

from ragstore.errors import ConfigError
from ragstore.evaluation.variants import DEFAULTS, parse, parse_all


def test_words_say_legs_fusion_blobs_and_switches() -> None:
    assert parse("configured").switches == {}
    assert parse("max-norm").switches == {"fusion": "max-norm"}
    assert (parse("text").legs, parse("vector").legs, parse("rrf").legs) == ("text", "vector", "both")
    assert (parse("rrf").per_blob, parse("rrf per-blob=3").per_blob, parse("per-blob=all").per_blob) == (1, 3, None)
    assert parse("rrf mmr=0.7  neighbours=2").switches == {"fusion": "rrf", "mmr": 0.7, "neighbours": 2}
    assert [parse(text).switches for text in ("text rerank", "no-rerank")] == [{"rerank": True}, {"rerank": False}]
    assert parse(" rrf   mmr=0.7").name == "rrf mmr=0.7"


def test_what_is_named_twice_is_measured_once() -> None:
    assert [variant.name for variant in parse_all(["rrf", "text", " rrf"])] == ["rrf", "text"]
    assert [variant.name for variant in parse_all(DEFAULTS)] == list(DEFAULTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to compare is named"),
        ("rff", "did you mean 'rrf'"),
        ("per-blob=0", "per-blob is a number, above 0, or all"),
        ("per-blob=", "per-blob is a number"),
        ("per-blob=²", "per-blob is a number"),
        ("mmr=nan", "mmr is a number"),
        ("mmr=2", "mmr must be between 0 and 1"),
        ("neighbours=99", "neighbours must be between 0 and"),
        ("rrf max-norm", "says two things of one"),
        ("text mmr=1 mmr=0", "says two things of one"),
        ("rerank no-rerank", "says two things of one"),
        ("rerank=1", "says nothing about how to search; did you mean"),
        ("plain=rrf", "says nothing about how to search"),
    ],
)
def test_words_that_mean_nothing_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)
