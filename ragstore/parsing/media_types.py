"""The tables of what can be read: extensions and media types, and the kind of parser that each leads to."""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal[
    "text", "markdown", "source", "csv", "json", "jsonl", "notebook", "html", "xml", "mail", "mbox",
    "pdf", "office", "opendocument", "epub", "rtf", "outlook",
]  # fmt: skip
"""Which parser reads a file."""


class KINDS:
    """Groups of kinds that are treated alike."""

    text: Final = frozenset({"text", "markdown", "source", "csv", "json", "jsonl", "notebook", "html", "xml", "mail", "mbox"})
    """Text in some encoding."""
    binary: Final = frozenset({"pdf", "office", "opendocument", "epub", "rtf", "outlook"})
    """Formats with a magic: content without it is not of that kind."""
    streamed: Final = frozenset({"text", "markdown", "source", "csv", "jsonl"})
    """Read in pieces, whatever their size."""
    cheap: Final = frozenset({"text", "markdown", "source", "csv", "json", "jsonl", "notebook"})
    """Read by the standard library in time that grows with size only."""


GENERIC: Final = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "text/plain", "application/x-download", "application/zip"}
)
"""Declared types that say nothing: what a client writes that does not know better."""

_OOXML = "application/vnd.openxmlformats-officedocument."
DOCX: Final = _OOXML + "wordprocessingml.document"
PPTX: Final = _OOXML + "presentationml.presentation"
XLSX: Final = _OOXML + "spreadsheetml.sheet"

_PLAIN: dict[str, tuple[Kind, str]] = {
    ".txt": ("text", "text/plain"), ".text": ("text", "text/plain"), ".log": ("text", "text/plain"), ".srt": ("text", "text/plain"),
    ".vtt": ("text", "text/plain"), ".tex": ("text", "text/x-tex"), ".rst": ("text", "text/x-rst"), ".adoc": ("text", "text/x-asciidoc"),
    ".org": ("text", "text/x-org"), ".md": ("markdown", "text/markdown"), ".markdown": ("markdown", "text/markdown"),
    ".mdx": ("markdown", "text/markdown"), ".qmd": ("markdown", "text/markdown"), ".rmd": ("markdown", "text/markdown"),
    ".csv": ("csv", "text/csv"), ".tsv": ("csv", "text/tab-separated-values"), ".tab": ("csv", "text/tab-separated-values"),
    ".json": ("json", "application/json"), ".geojson": ("json", "application/json"), ".webmanifest": ("json", "application/json"),
    ".jsonl": ("jsonl", "application/jsonl"), ".ndjson": ("jsonl", "application/jsonl"), ".ipynb": ("notebook", "application/x-ipynb+json"),
    ".html": ("html", "text/html"), ".htm": ("html", "text/html"), ".xhtml": ("html", "text/html"), ".xml": ("xml", "application/xml"),
    ".rss": ("xml", "application/xml"), ".atom": ("xml", "application/xml"), ".xsd": ("xml", "application/xml"), ".svg": ("xml",
    "image/svg+xml"),
    ".eml": ("mail", "message/rfc822"), ".mbox": ("mbox", "application/mbox"),
}  # fmt: skip

_FORMATS: dict[str, tuple[Kind, str]] = {
    ".pdf": ("pdf", "application/pdf"), ".rtf": ("rtf", "application/rtf"), ".epub": ("epub", "application/epub+zip"),
    ".docx": ("office", DOCX), ".docm": ("office", DOCX), ".dotx": ("office", DOCX), ".pptx": ("office", PPTX), ".pptm": ("office", PPTX),
    ".ppsx": ("office", PPTX), ".xlsx": ("office", XLSX), ".xlsm": ("office", XLSX), ".doc": ("office", "application/msword"),
    ".xls": ("office", "application/vnd.ms-excel"), ".ppt": ("office", "application/vnd.ms-powerpoint"),
    ".odt": ("opendocument", "application/vnd.oasis.opendocument.text"), ".ods": ("opendocument",
    "application/vnd.oasis.opendocument.spreadsheet"),
    ".odp": ("opendocument", "application/vnd.oasis.opendocument.presentation"), ".msg": ("outlook", "application/vnd.ms-outlook"),
}  # fmt: skip

_LANGUAGES = {
    "python": ".py .pyi .pyw", "javascript": ".js .mjs .cjs .jsx", "typescript": ".ts .tsx .mts", "java": ".java", "kotlin": ".kt .kts",
    "csharp": ".cs .csx", "c": ".c .h", "cpp": ".cpp .cc .cxx .hpp .hh .hxx .inl", "go": ".go", "rust": ".rs",
    "ruby": ".rb gemfile rakefile",
    "php": ".php", "swift": ".swift", "scala": ".scala .sc", "lua": ".lua", "perl": ".pl .pm", "haskell": ".hs", "elixir": ".ex .exs",
    "powershell": ".ps1 .psm1", "sh": ".sh .bash .zsh", "sql": ".sql", "proto": ".proto", "solidity": ".sol", "cobol": ".cob .cbl",
    "r": ".r", "julia": ".jl", "dart": ".dart", "fsharp": ".fs .fsx", "vb": ".vb", "visualbasic6": ".bas .cls", "css": ".css .scss .less",
    "yaml": ".yaml .yml", "toml": ".toml", "ini": ".ini .cfg .conf .properties .editorconfig", "makefile": "makefile .mk",
    "dockerfile": "dockerfile .dockerfile", "terraform": ".tf .tfvars .hcl", "bicep": ".bicep", "batch": ".bat .cmd", "vue": ".vue",
    "graphql": ".graphql .gql",
    "clojure": ".clj .cljs", "erlang": ".erl", "ocaml": ".ml .mli", "groovy": ".groovy .gradle", "diff": ".diff .patch",
}  # fmt: skip
"""Language and its extensions; the media type is `text/x-LANGUAGE`."""

_SOURCES: dict[str, tuple[Kind, str]] = {
    extension: ("source", f"text/x-{language}") for language, extensions in _LANGUAGES.items() for extension in extensions.split()
}

BY_EXTENSION: Final[dict[str, tuple[Kind, str]]] = {**_SOURCES, **_PLAIN, **_FORMATS}
"""Extension with its dot, or a whole file name, lower-cased → kind and media type."""

BY_MEDIA_TYPE: Final[dict[str, Kind]] = {
    **{media_type: kind for kind, media_type in BY_EXTENSION.values()},
    "text/x-markdown": "markdown", "application/csv": "csv", "text/json": "json", "application/x-ndjson": "jsonl",
    "application/x-jsonlines": "jsonl",
    "application/ndjson": "jsonl", "application/xhtml+xml": "html", "text/xml": "xml", "application/rss+xml": "xml",
    "application/atom+xml": "xml",
    "text/rtf": "rtf", "application/x-pdf": "pdf", "text/javascript": "source", "application/javascript": "source", "text/css": "source",
    "application/yaml": "source", "application/x-yaml": "source", "text/yaml": "source", "application/toml": "source",
    "application/sql": "source",
    "application/x-sh": "source", "application/typescript": "source",
}  # fmt: skip
"""Declared media type → kind."""
