"""`ragstore search` and `ragstore prompt`: a question and a principal in, what that principal may read about it out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ragstore.cli import hits, opening
from ragstore.cli.options import (
    AsJson,
    AsPrincipal,
    Config,
    FilterExpression,
    MaxTokens,
    Query,
    Quiet,
    Rerank,
    TemplateName,
    Verbose,
    switches,
    template_named,
)
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal

VectorWeight = Annotated[
    float | None, typer.Option("--vector-weight", metavar="SHARE", help="Of the vectors in a score, 0 to 1; the words have the rest.")
]
NearDuplicates = Annotated[
    float | None, typer.Option("--near-duplicates", metavar="LIKENESS", help="Show the best of texts that share so much; 1: equal ones.")
]
Mmr = Annotated[float | None, typer.Option("--mmr", metavar="LAMBDA", help="Relevance against variety, 0 to 1; 1: relevance alone.")]
HalfLife = Annotated[float | None, typer.Option("--half-life-days", metavar="DAYS", help="Lift what was modified lately; 0: do not.")]
Neighbours = Annotated[int | None, typer.Option("--neighbours", metavar="N", help="Show so many chunks before and behind each hit.")]


class Fusion(StrEnum):
    """How the ranks of vectors and of words become one."""

    MAX_NORM = "max-norm"
    RRF = "rrf"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Find what PRINCIPAL may read about QUERY", epilog=EXIT_CODES)(search)
    app.command(short_help="Build a prompt for QUERY, with citations", epilog=EXIT_CODES)(prompt)


@answers
def search(
    *,
    query: Query,
    principal: AsPrincipal = None,
    limit: Annotated[int, typer.Option("-k", metavar="N", help="The most hits, 1 to 1000.")] = 8,
    filter: FilterExpression = None,
    fusion: Annotated[Fusion | None, typer.Option("--fusion", help="How vector and full-text scores become one.")] = None,
    vector_weight: VectorWeight = None,
    near_duplicates: NearDuplicates = None,
    mmr: Mmr = None,
    half_life_days: HalfLife = None,
    neighbours: Neighbours = None,
    rerank: Rerank = None,
    per_blob: Annotated[int | None, typer.Option("--per-blob", metavar="N", help="The most hits of one blob.")] = None,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Show the chunks that answer best, of those that PRINCIPAL may read.

    What is not said about ranking is as in [retrieval].
    """
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    said = switches(
        fusion=fusion and fusion.value,
        vector_weight=vector_weight,
        near_duplicates=near_duplicates,
        mmr=mmr,
        half_life_days=half_life_days,
        neighbours=neighbours,
        rerank=rerank,
    )
    with open_index(opening.settings_for_reading(config)) as opened:
        found = opened.search(query, principal=opened.principal(principal), limit=limit, filter=filter, per_blob=per_blob, **said)
    if as_json:
        terminal.json({"hits": [hit.as_dict() for hit in found]})
    else:
        hits.show(found, query, terminal)
    return Exit.DONE


@answers
def prompt(
    *,
    query: Query,
    principal: AsPrincipal = None,
    max_tokens: MaxTokens = None,
    filter: FilterExpression = None,
    template: TemplateName = None,
    rerank: Rerank = None,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Print the augmented prompt for QUERY: messages for a chat model, with numbered citations."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    said = switches(rerank=rerank)
    with open_index(opening.settings_for_reading(config)) as opened:
        who, named = opened.principal(principal), template_named(template)
        built = opened.prompt(query, principal=who, max_tokens=max_tokens, filter=filter, template=named, **said)
    if as_json:
        citations = [citation.as_dict() for citation in built.citations]
        terminal.json({"messages": [dict(message) for message in built.messages], "citations": citations, "tokens": built.tokens})
    else:
        hits.show_prompt(built, terminal)
    return Exit.DONE
