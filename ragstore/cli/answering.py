"""`ragstore ask`: a question and a principal in; a model's answer from what that principal may read, and a check of it, out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ragstore.cli import opening
from ragstore.cli.hits import show_citations
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
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.answering import Endpoint, Grounding
    from ragstore.config import Settings
    from ragstore.models import Prompt


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Have a model answer QUERY, and check its citations", epilog=EXIT_CODES)(ask)


@answers
def ask(
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
    """Send the prompt for QUERY to the model in [ask], show its answer as it comes, and check what it cites.

    Every [n] must be there, and every quotation must stand in the source that is cited for it. Where nothing is found, nothing is sent.
    """
    import asyncio

    from ragstore.answering import check
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    settings = opening.settings_for_reading(config)
    endpoint = _endpoint(settings)
    with open_index(settings) as opened:
        who, named, said = opened.principal(principal), template_named(template), switches(rerank=rerank)
        built = opened.prompt(query, principal=who, max_tokens=max_tokens, filter=filter, template=named, **said)
    if not built.citations:
        terminal.note("nothing found that this principal may read, so no model was asked")
        if as_json:
            terminal.json({"answer": None, "citations": []})
        return Exit.DONE
    answer = asyncio.run(_answer(endpoint, built, terminal))
    found = check(answer, built.texts)
    if as_json:
        terminal.json({"answer": answer, "citations": [citation.as_dict() for citation in built.citations], **found.as_dict()})
    else:
        _show(built, found, terminal)
    return Exit.DIFFERENT if found.problems else Exit.DONE


def _endpoint(settings: Settings) -> Endpoint:
    """Raises `ConfigError` where nobody said where to send documents to."""
    from ragstore.answering import Endpoint

    section = settings.ask
    if not section.base_url or not section.model:
        raise ConfigError("no model to ask is named; write [ask] base_url and model (and api_key_env), and documents are sent there")
    return Endpoint(base_url=section.base_url, model=section.model, api_key_env=section.api_key_env, timeout=section.timeout)


async def _answer(endpoint: Endpoint, built: Prompt, terminal: Terminal) -> str:
    pieces: list[str] = []
    async for piece in endpoint.answer(built.messages):
        pieces.append(piece)
        if not terminal.as_json:
            print(plain(piece, keep="\n\t"), end="", flush=True)  # noqa: T201 - the terminal is our output
    if not terminal.as_json:
        terminal.line()
    return "".join(pieces)


def _show(built: Prompt, found: Grounding, terminal: Terminal) -> None:
    share = "nothing is stated"
    if found.share is not None:
        share = f"{found.grounded} of {found.statements} statements cite a source ({found.share:.0%})"
    terminal.line(f"--- {share} ---")
    show_citations(built.citations, terminal)
    for problem in found.problems:
        terminal.line(f"wrong {problem.kind}: {problem.text}: {problem.why}")
