"""A downloaded blob in, a document out: media type by content, text in blocks with pages and headings, parsed in worker processes."""

from ragstore.parsing.dispatch import is_trusted, parse
from ragstore.parsing.sandbox import ParserPool
from ragstore.parsing.stream import ParsedStream, as_stream

PARSER_VERSION = "1"
"""Changes whenever the same bytes may give another text; part of the pipeline's fingerprint."""

__all__ = ["PARSER_VERSION", "ParsedStream", "ParserPool", "as_stream", "is_trusted", "parse"]
