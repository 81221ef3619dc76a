"""What a condition costs a query: parsed, folded for a principal, and translated to a filter.

    python tests/benchmarks/access.py access [--quick] [--output FILE]

The largest condition that Azure stores, 8 KB, of the kinds of comparisons that its documentation shows.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from ragstore.access.conditions.reduction import reduce
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.translation import to_filter
from ragstore.access.conditions.tree import PATH, READ_ACTION, TAGS, Condition, Context
from ragstore.filters import Filter
from ragstore_lancedb.filters import where
from tests.benchmarks.figures import Figure, finish, options

LARGEST = 8_192
"""Bytes of a condition, as Azure limits them."""
TARGET = 5.0
"""Milliseconds for all three steps."""
_GUARD = f"(!(ActionMatches{{'{READ_ACTION}'}} AND NOT SubOperationMatches{{'Blob.List'}})) OR "
_SECURITY = "Microsoft.Directory/CustomSecurityAttributes/Id:Engineering_Project"
_PRINCIPAL = Context(principal={_SECURITY: ("Baker", "Cascade")})


def large_condition() -> str:
    """As many alternatives as fit."""
    parts = [f"@Resource[{TAGS}:Project<$key_case_sensitive$>] StringEquals 'Baker'"]
    number = 0
    while True:
        tag = f"@Resource[{TAGS}:Project{number}<$key_case_sensitive$>]"
        more = (
            f"{tag} StringEquals 'Cascade {number}'",
            f"({tag} StringNotEqualsIgnoreCase 'high' AND @Resource[{PATH}] StringLike 'reports/{number}/*.md')",
            f"@Resource[{PATH}] StringStartsWith 'teams/{number}/'",
            f"@Principal[{_SECURITY}] ForAnyOfAnyValues:StringEquals {tag}",
        )[number % 4]
        text = f"({_GUARD}({' OR '.join([*parts, more])}))"
        if len(text.encode()) > LARGEST:
            return f"({_GUARD}({' OR '.join(parts)}))"
        parts.append(more)
        number += 1


def language(*, quick: bool) -> list[Figure]:
    """Medians over many rounds, in milliseconds."""
    text = large_condition()
    steps: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[[], Condition | tuple[Filter, bool] | str | None]) -> None:
        start = time.perf_counter()
        work()
        steps.setdefault(step, []).append((time.perf_counter() - start) * 1_000)

    tree = parse(text)
    rest = reduce(tree, _PRINCIPAL, now=None)
    found, exact = to_filter(rest)
    for _ in range(20 if quick else 200):
        timed("parse", lambda: parse(text))
        timed("fold", lambda: reduce(tree, _PRINCIPAL, now=None))
        timed("translate", lambda: to_filter(rest))
        timed("LanceDB's where", lambda: where(found))
    medians = {step: statistics.median(times) for step, times in steps.items()}
    whole = medians["parse"] + medians["fold"] + medians["translate"]
    size = f"{len(text.encode()):,} bytes, {text.count('@Resource')} attributes, {'exact' if exact else 'a superset'}"
    figures = [Figure(name="8 KB condition: parse, fold, translate", value=whole, unit="ms", target=TARGET, note=size)]
    return [*figures, *(Figure(name=f"8 KB condition: {step}", value=value, unit="ms") for step, value in medians.items())]


MEASURES = {"access": language}


def main() -> int:
    """One of the measures."""
    asked = options(__doc__, MEASURES)
    return finish(MEASURES[asked.name](quick=asked.quick), asked.output)


if __name__ == "__main__":
    sys.exit(main())
