"""A Jinja2 template in, the contents of the system and the user message out; whatever is wrong with it is said with its line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragstore.errors import ConfigError
from ragstore.prompting.sources import Source

if TYPE_CHECKING:
    from jinja2 import Template

_FOLDER: Final = Path(__file__).parent / "templates"
_DEFAULT: Final = _FOLDER / "default.jinja"
SHIPPED: Final = {"answer": _DEFAULT, "summarise": _FOLDER / "summarise.jinja", "chat": _FOLDER / "chat.jinja"}
"""For a question, for a topic, and for a question behind earlier messages."""
_ROLES: Final = ("system", "user")


class PromptTemplate:
    """The blocks `system` and `user` of a template; one that it does not define is the default's.

    Each block sees only these variables, so a macro or `set` belongs inside the block that uses it:

    - `query`: the question.
    - `sources`: possibly empty; each has `number`, `blob`, `title`, `page`, `heading`, `text`, `stale`, `cut`, and `fenced`, which is all
      of it between two lines that no document can imitate. Use `fenced` unless you fence in another way.
    - `boundary`: the 12 hex digits in those lines.
    - `history`: how many messages of the conversation stand between the two.
    - `wishes`: how the application that asks would like the answer to be, possibly empty; it changes no rule and is no source.

    The template is sandboxed, an unknown variable is an error, and nothing is escaped. What documents say is never read as a template.
    Raises `ConfigError` for a template that cannot be read, has neither block, or fails with sources or without.
    """

    def __init__(self, template: str | Path | None) -> None:
        default = _compile(_read(_DEFAULT), "default.jinja")
        if template is None:
            self._templates = dict.fromkeys(_ROLES, default)
            return
        name = template.name if isinstance(template, Path) else "<template>"
        own = _compile(_read(template) if isinstance(template, Path) else template, name)
        if not any(role in own.blocks for role in _ROLES):
            raise ConfigError(
                f"the prompt template {name!r} has neither of the blocks 'system' and 'user': "
                "write {% block user %} ... {{ query }} ... {% endblock %}"
            )
        self._templates = {role: own if role in own.blocks else default for role in _ROLES}
        for sources in ((), (_EXAMPLE,)):
            for history, wishes in ((0, ""), (2, "Be brief.")):
                self.render(query="a question", sources=sources, boundary="0123456789ab", history=history, wishes=wishes)

    def render(self, *, query: str, sources: Sequence[Source], boundary: str, history: int = 0, wishes: str = "") -> tuple[str, str]:
        """The contents of the system and of the user message, without white space at their ends."""
        values: dict[str, object] = {
            "query": query,
            "sources": tuple(sources),
            "boundary": boundary,
            "history": history,
            "wishes": wishes,
        }
        system, user = (_block(self._templates[role], role, values) for role in _ROLES)
        return system, user


_EXAMPLE: Final = Source(
    number=1, blob="docs/a.md", title=None, page=None, heading=None, text="text", stale=False, cut=False, fenced="text"
)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the prompt template {str(file)!r} cannot be read: {error}") from error


def _compile(text: str, name: str) -> Template:
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,  # the output is text for a model, not HTML; documents are fenced instead
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        code = environment.compile(text, name, name)
    except TemplateSyntaxError as error:
        raise ConfigError(f"the prompt template {name!r}, line {error.lineno}: {error.message}") from error
    except RecursionError as error:
        raise ConfigError(f"the prompt template {name!r} is nested too deep") from error
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def _block(template: Template, role: str, values: dict[str, object]) -> str:
    try:
        return "".join(template.blocks[role](template.new_context(values))).strip()
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == template.filename]
        place = f", line {template.get_corresponding_lineno(lines[-1])}" if lines and lines[-1] else f", block {role!r}"
        raise ConfigError(f"the prompt template {template.name!r}{place}: {error}") from error
