"""Texts of the formats that the OpenAPI document names and Schemathesis does not know, for the tests that it makes."""

from __future__ import annotations

import schemathesis
from hypothesis import strategies as st

_COLUMNS = st.sampled_from(["account", "container", "path", "media_type", "tag.allow", "metadata.team"])
_VALUES = st.text("abcäß中/.-% ", max_size=12).map(lambda text: f"'{text}'")
_LEAVES = st.builds("{} {} {}".format, _COLUMNS, st.sampled_from(["=", "!=", "starts with"]), _VALUES)
FILTERS: st.SearchStrategy[str] = st.recursive(
    _LEAVES, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner), max_leaves=4
)

schemathesis.openapi.format("ragstore-filter", FILTERS)
