"""A request of a browser in; the web page, which asks the API as anybody does and holds nothing itself, out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER: Final = Path(__file__).parent / "web"
_TYPES: Final = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Documents may be hostile and are shown: nothing but these files runs, nothing is loaded or sent elsewhere, and no text becomes markup."""
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGES: Final = {"/": "index.html", **{f"/web/{name}": name for name in ("page.css", "page.js", "shown.js")}}


def page_routes() -> list[Route]:
    """The page and its parts; anybody may have them. Read once: they are part of the package."""
    return [Route(path, endpoint=_answering(_FOLDER / name), methods=["GET"]) for path, name in PAGES.items()]


def _answering(file: Path) -> Callable[[Request], Awaitable[Response]]:
    content = file.read_bytes()
    headers = {**_HEADERS, "Content-Type": _TYPES[file.suffix]}

    async def answer(_request: Request) -> Response:
        return Response(content, headers=headers)

    return answer
