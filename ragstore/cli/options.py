"""The options that several commands share, each once, so that they mean and say the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from ragstore.retrieval import Switches


def _inherit(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401 - options of any type pass through
    """`ragstore -c FILE search` is `ragstore search -c FILE`: what was not said behind a command counts where it stands before it."""
    above = context.parent
    while value in (None, False) and above is not None:
        value = above.params.get(str(parameter.name), value)
        above = above.parent
    return value


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", callback=_inherit, help="The configuration. Default: ./ragstore.toml, where there is one."
    ),
]
ConfigToWrite = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", callback=_inherit, help="The file to write. Default: ./ragstore.toml."),
]
AsJson = Annotated[bool, typer.Option("--json", callback=_inherit, help="One JSON document on stdout, nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", callback=_inherit, help="Say more on stderr; show where a bug is.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_inherit, help="No notes and no progress on stderr; errors only.")]
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE", show_default=False, help="A folder, or the URL of an Azure container. Default: [source] of the configuration."
    ),
]
AsPrincipal = Annotated[
    str | None,
    typer.Option("--as", metavar="PRINCIPAL", help="Who asks, by id or name. Needed in every access mode but `open`."),
]
FilterExpression = Annotated[
    str | None,
    typer.Option("--filter", metavar="EXPR", help="Narrow the search: \"tag.department = 'hr' and path starts with 'reports/'\"."),
]
TemplateName = Annotated[
    str | None,
    typer.Option("--template", metavar="NAME", help="`answer`, `summarise`, `chat`, or a file of your own. Default: [prompt] template."),
]
Rerank = Annotated[
    bool | None, typer.Option("--rerank/--no-rerank", help="Have the model of [reranker] order the hits. Default: where there is one.")
]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="The question, in the words of whoever asks.")]


def switches(**said: object) -> Switches:
    """Those of the options about ranking that were given."""
    return cast("Switches", {name: value for name, value in said.items() if value is not None})


def template_named(said: str | None) -> str | None:
    """A file that was named on the command line is looked for from here, not from the folder of the configuration."""
    from ragstore.prompting import SHIPPED

    return said if said is None or said in SHIPPED else str(Path(said).absolute())


MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="The most tokens of the prompt. Default: [prompt] max_tokens.")
]
