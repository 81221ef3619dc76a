"""What access costs a query: a condition parsed, folded for a principal, and translated; many role assignments of one principal.

    python tests/benchmarks/access.py access [--quick] [--output FILE]

The largest condition that Azure stores, 8 KB, of the kinds of comparisons that its documentation shows. 500 assignments, half of them to
groups of the principal, each to a container of its own and under a condition of its own, among as many of others.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ragstore.access.azure.policy import AzurePolicy
from ragstore.access.conditions.reduction import reduce
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.translation import to_filter
from ragstore.access.conditions.tree import PATH, READ_ACTION, TAGS, Condition, Context
from ragstore.filters import Filter
from ragstore.models import Principal
from ragstore_lancedb.filters import where
from tests.benchmarks.figures import Figure, finish, options
from tests.support.azure_files import assigned, container, policy_of

LARGEST = 8_192
"""Bytes of a condition, as Azure limits them."""
ASSIGNMENTS = 500
_SETTLED = 0.3
"""Seconds after which a file that was just written is not read again for every question."""
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


def assignments(*, quick: bool) -> list[Figure]:
    """The filter of a principal that was never asked for before, and of one that was; medians, in milliseconds of the processor."""
    groups = frozenset(f"group-{number}" for number in range(ASSIGNMENTS // 2))
    askers = [Principal(id="asking", name="", groups=groups, attributes={"Set_Round": (str(n),)}) for n in range(3 if quick else 20)]
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        policy = policy_of(Path(folder), [_assignment(number) for number in range(2 * ASSIGNMENTS)])
        time.sleep(_SETTLED)
        policy.filter_for(Principal(id="nobody", name=""))  # has the file read
        cold = [_milliseconds(policy, asker) for asker in askers]
        cached = [_milliseconds(policy, asker) for asker in askers for _ in range(50)]
    many = f"{ASSIGNMENTS} assignments"
    return [
        Figure(
            name=f"{many}, each over an attribute of its own: cold", value=_each_its_own(groups, quick=quick), unit="CPU-ms", target=20.0
        ),
        Figure(name=f"{many}: filter, cold", value=statistics.median(cold), unit="CPU-ms", target=20.0),
        Figure(name=f"{many}: filter, cached", value=statistics.median(cached), unit="CPU-ms", target=0.1),
    ]


def _each_its_own(groups: frozenset[str], *, quick: bool) -> float:
    """The filter of a principal that holds as many attributes as assignments, whose conditions ask for one each."""
    names = [f"Set_Own{number}" for number in range(ASSIGNMENTS)]
    askers = [
        Principal(id="asking", name="", groups=groups, attributes=dict.fromkeys(names, (f"round {n}",))) for n in range(3 if quick else 20)
    ]
    given = []
    for number, name in enumerate(names):
        tag = f"@Resource[{TAGS}:Project{number % 20}<$key_case_sensitive$>]"
        own = f"@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:{name}]"
        condition = f"({_GUARD}({own} ForAnyOfAnyValues:StringEquals {tag}))"
        given.append(assigned("asking", scope=container(f"container-{number}"), condition=condition))
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        policy = policy_of(Path(folder), given)
        time.sleep(_SETTLED)
        policy.filter_for(Principal(id="nobody", name=""))
        return statistics.median(_milliseconds(policy, asker) for asker in askers)


def _assignment(number: int) -> dict[str, object]:
    """The first half are the principal's own or of its groups; conditions ask of the blob, of the principal, or of both."""
    holder = f"other-{number}" if number >= ASSIGNMENTS else "asking" if number % 2 else f"group-{number // 2}"
    tag = f"@Resource[{TAGS}:Project{number % 20}<$key_case_sensitive$>]"
    condition = (
        f"{_GUARD}({tag} StringEquals 'Cascade {number}')",
        f"{_GUARD}(@Resource[{PATH}] StringStartsWith 'teams/{number}/')",
        f"{_GUARD}(@Principal[{_SECURITY}] ForAnyOfAnyValues:StringEquals {tag} OR {tag} StringEquals 'all {number}')",
    )[number % 3]
    return assigned(holder, scope=container(f"container-{number}"), condition=f"({condition})")


def _milliseconds(policy: AzurePolicy, principal: Principal) -> float:
    """Of the processor: nothing is waited for, and other work on the machine does not count."""
    start = time.process_time()
    policy.filter_for(principal)
    return (time.process_time() - start) * 1_000


def access(*, quick: bool) -> list[Figure]:
    """Both."""
    return [*language(quick=quick), *assignments(quick=quick)]


MEASURES = {"access": access}


def main() -> int:
    """One of the measures."""
    asked = options(__doc__, MEASURES)
    return finish(MEASURES[asked.name](quick=asked.quick), asked.output)


if __name__ == "__main__":
    sys.exit(main())
