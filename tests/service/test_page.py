"""The files of the web page in; what a browser may do with them out."""

from __future__ import annotations

import re

from ragstore.service.page import PAGES
from tests.service.conftest import Serving


async def test_the_page_is_whole_and_lets_nothing_else_run(serving: Serving) -> None:
    async with serving() as served:
        for path in PAGES:
            answer = await served.http.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not re.findall(r"https?://|//cdn|@import|url\(", answer.text)  # nothing of others'
            assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\bon[a-z]+=", answer.text)
        assert (await served.http.head("/")).status_code == 200
        assert (await served.http.post("/")).status_code == 405
        assert (await served.http.get("/web/")).status_code == 404
        assert (await served.http.get("/web/../app.py")).status_code == 404
        assert [line["route"] for line in served.lines()][: len(PAGES)] == list(PAGES)
        assert "/" not in (await served.http.get("/openapi.json")).json()["paths"]
