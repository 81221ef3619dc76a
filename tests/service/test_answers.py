"""Questions over HTTP: what is answered, what is refused, and that nobody sees what another may read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ragstore.errors import AccessError, ConfigError, TransientError
from ragstore.models import Hit
from tests.service.conftest import ADA_CANARY, BOB_CANARY, Serving, token
from tests.support.workspace import Workspace

_CANARIES = {"ada": ADA_CANARY, "bob": BOB_CANARY}
_WRONG: list[tuple[Any, int]] = [
    ({"query": ""}, 422),
    ({"query": "   "}, 400),
    ({"query": "a\0b"}, 422),
    ({"query": "x" * 9000}, 422),
    ({"query": "x", "limit": 0}, 422),
    ({"query": "x", "limit": "8"}, 422),
    ({"query": "x", "limit": 1001}, 422),
    ({"query": "x", "fusion": "sum"}, 422),
    ({"query": "x", "mmr": 2.0}, 422),
    ({"query": "x", "neighbours": 11}, 422),
    ({"query": "x", "filter": "path ="}, 400),
    ({"query": "x", "per_blob": 0}, 422),
    ([], 422),
]


async def test_each_caller_finds_what_the_credential_may_read(serving: Serving) -> None:
    async with serving() as served:
        for who, canary in _CANARIES.items():
            answer = await served.post("search", who, query="who meets when?")
            assert answer.status_code == 200
            assert {hit["blob"] for hit in answer.json()["hits"]} == {f"docs/{who}.md", "docs/both.md"}
            assert canary in answer.text
        assert (await served.post("search", "eve", query="who meets when?")).json() == {"hits": []}


async def test_a_prompt_holds_numbered_sources(serving: Serving) -> None:
    async with serving() as served:
        prompt = (await served.post("prompt", "ada", query="when does the board meet?", max_tokens=1000)).json()
        assert prompt["messages"][-1]["role"] == "user"
        assert {citation["blob"] for citation in prompt["citations"]} == {"docs/ada.md", "docs/both.md"}
        assert 0 < prompt["tokens"] <= 1000


async def test_a_chunk_that_is_forbidden_is_answered_as_one_that_is_not_there(serving: Serving) -> None:
    async with serving() as served:
        hits = (await served.post("search", "ada", query="board")).json()["hits"]
        chunk = next(hit["chunk"] for hit in hits if hit["blob"] == "docs/ada.md")
        assert (await served.http.get(f"/v1/chunks/{chunk}", headers=served.bearer("ada"))).json()["text"] == hits[0]["text"]
        forbidden = await served.http.get(f"/v1/chunks/{chunk}", headers=served.bearer("bob"))
        absent = await served.http.get(f"/v1/chunks/{'0' * 32}", headers=served.bearer("bob"))
        assert forbidden.status_code == absent.status_code == 404
        for answer in (forbidden, absent):
            assert answer.headers["content-type"] == "application/problem+json"
        differing = {"request_id"}
        assert {**forbidden.json(), **dict.fromkeys(differing)} == {**absent.json(), **dict.fromkeys(differing)}


async def test_two_people_asking_at_once_never_see_each_others_canary(serving: Serving) -> None:
    async with serving() as served:
        ids = {hit.chunk: who for who in _CANARIES for hit in await served.index.search("meets", principal=served.index.principal(who))}

        async def asks(who: str, number: int) -> str:
            other = _CANARIES["bob" if who == "ada" else "ada"]
            query = f"meets {number}"
            answers = [
                await served.post("search", who, query=query),
                await served.post("search", who, query=query, filter="path = 'bob.md' or path = 'ada.md'"),
                await served.post("prompt", who, query=query, neighbours=1),
                await served.post("search", who, query=query, neighbours=2, mmr=0.5, near_duplicates=0.8, half_life_days=30, fusion="rrf"),
                await served.post("search", who, query="x", filter="nonsense ="),
                await served.post("search", who, query="x", principal="bob" if who == "ada" else "ada"),
                await served.post("prompt", who, query="x", max_tokens=256),
                *[await served.http.get(f"/v1/chunks/{chunk}", headers=served.bearer(who)) for chunk in ids],
                await served.http.get("/metrics", headers=served.bearer(who)),
                await served.http.get("/metrics", headers=served.bearer("metrics")),
                await served.http.get("/readyz"),
                await served.http.get("/openapi.json"),
            ]
            assert not [(answer.request.url, answer.text) for answer in answers if other in answer.text]
            assert [answer.status_code for answer in answers[:4]] == [200] * 4, [answer.text for answer in answers[:4]]
            return str(answers[0].text)

        texts = await asyncio.gather(*(asks(who, number) for number in range(6) for who in ("ada", "bob")))
        assert sum(ADA_CANARY in text for text in texts) == sum(BOB_CANARY in text for text in texts) == 6
        assert ADA_CANARY not in served.log.getvalue()
        assert BOB_CANARY not in served.log.getvalue()


async def test_a_whole_number_may_be_written_with_a_point(serving: Serving) -> None:
    async with serving() as served:
        assert len((await served.post("search", "ada", query="who meets when?", limit=1.0)).json()["hits"]) == 1


async def test_a_body_that_says_who_asks_is_refused(serving: Serving) -> None:
    async with serving() as served:
        named: dict[str, Any]
        for named in ({"principal": "ada"}, {"as": "ada"}, {"user": "ada"}, {"groups": ["board"]}):
            answer = await served.post("search", "bob", query="board", **named)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["at"] == f"body.{next(iter(named))}"


async def test_no_header_and_no_parameter_makes_somebody_another(serving: Serving) -> None:
    async with serving() as served:
        headers = {
            **served.bearer("bob"), "X-MS-CLIENT-PRINCIPAL-ID": "ada", "X-Forwarded-User": "ada", "X-Principal": "ada", "Cookie": "as=ada"
        }  # fmt: skip
        answer = await served.http.post("/v1/search?principal=ada&as=ada", json={"query": "board"}, headers=headers)
        assert ADA_CANARY not in answer.text
        assert BOB_CANARY in answer.text


async def test_a_question_that_is_wrong_is_told_where(serving: Serving) -> None:
    async with serving() as served:
        for body, status in _WRONG:
            answer = await served.http.post("/v1/search", json=body, headers=served.bearer("ada"))
            assert answer.status_code == status
            problem = answer.json()
            assert (problem["status"], problem["type"], answer.headers["content-type"]) == (
                status,
                "about:blank",
                "application/problem+json",
            )
            assert problem["request_id"] == answer.headers["x-request-id"]
            assert status == 400 or problem["errors"][0]["problem"]


async def test_a_body_that_is_no_text_is_no_fault_of_the_service(serving: Serving) -> None:
    async with serving() as served:
        for content in (b"", b"{", b'{"query": "\\ud800"}', b"[" * 5000, b"\xff\xfe", b'{"query": NaN}'):
            headers = {**served.bearer("ada"), "Content-Type": "application/json"}
            answer = await served.http.post("/v1/search", content=content, headers=headers)
            assert answer.status_code in {400, 422}, answer.text
            assert answer.headers["content-type"] == "application/problem+json"


async def test_only_json_is_taken(serving: Serving) -> None:
    async with serving() as served:
        headers = {**served.bearer("ada"), "Content-Type": "text/plain"}
        assert (await served.http.post("/v1/search", content=b'{"query": "x"}', headers=headers)).status_code == 415


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AccessError(f"the file says {ADA_CANARY}"), 503),
        (ConfigError(f"the file says {ADA_CANARY}"), 503),
        (TransientError(f"the store says {ADA_CANARY}", retry_after=7), 503),
        (RuntimeError(f"a row says {ADA_CANARY}"), 500),
        (OSError(f"a row says {ADA_CANARY}"), 500),
    ],
)
async def test_no_text_of_an_error_goes_to_a_caller(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def failing(*_args: object, **_options: object) -> list[Hit]:
        raise error

    async with serving() as served:
        monkeypatch.setattr(served.index, "search", failing)
        monkeypatch.setattr(served.index, "chunk", failing)
        for answer in (
            await served.post("search", "ada", query="x"),
            await served.http.get("/v1/chunks/x", headers=served.bearer("bob")),
        ):
            assert answer.status_code == status
            assert ADA_CANARY not in answer.text
            assert answer.headers["content-type"] == "application/problem+json"
        if isinstance(error, TransientError):
            assert answer.headers["retry-after"] == "7"
        if status == 500:
            assert ADA_CANARY not in served.log.getvalue()
            assert "test_answers.py" in served.log.getvalue()


async def test_a_file_of_principals_that_broke_answers_nobody_and_is_not_ready(serving: Serving) -> None:
    async with serving() as served:
        assert (await served.http.get("/readyz")).status_code == 200
        (served.workspace.base / "principals.json").write_text("{")
        assert (await served.post("search", "ada", query="x")).status_code == 503
        await asyncio.sleep(1.1)
        assert (await served.http.get("/readyz")).status_code == 503
        assert (await served.http.get("/healthz")).status_code == 200


async def test_what_cannot_embed_a_question_is_not_ready_and_what_can_is_not_asked_again(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def fails(texts: list[str], **_: object) -> None:
        asked.extend(texts)
        raise TransientError("the model is away")

    async with serving() as served:
        embed = served.workspace.embedder.embed

        async def works(texts: list[str], **options: Any) -> Any:
            asked.extend(texts)
            return await embed(texts, **options)

        for answers, status in ((fails, 503), (works, 200), (works, 200)):
            monkeypatch.setattr(served.workspace.embedder, "embed", answers)
            assert (await served.http.get("/readyz")).status_code == status
            await asyncio.sleep(1.1)
        assert len(asked) == 2


async def test_a_principal_who_left_is_refused_from_then_on(serving: Serving) -> None:
    async with serving() as served:
        assert (await served.post("search", "bob", query="x")).status_code == 200
        (served.workspace.base / "principals.json").write_text(json.dumps([{"id": "ada", "name": "Ada", "groups": ["staff"]}]))
        assert (await served.post("search", "bob", query="x")).status_code == 403
        assert (await served.post("search", "ada", query="x")).status_code == 200


async def test_a_token_and_a_key_of_one_principal_find_the_same(serving: Serving) -> None:
    async with serving() as served:
        headers = {"Authorization": f"Bearer {token(oid='ada', groups=['staff', 'board'])}"}
        by_token = await served.http.post("/v1/search", json={"query": "board"}, headers=headers)
        by_key = await served.post("search", "ada", query="board")
        assert by_token.json() == by_key.json()
        assert ADA_CANARY in by_token.text


async def test_the_application_documents_itself(serving: Serving) -> None:
    async with serving() as served:
        document = (await served.http.get("/openapi.json")).json()
        assert {"/v1/search", "/v1/prompt", "/v1/chunks/{chunk_id}", "/healthz", "/readyz", "/metrics"} <= document["paths"].keys()
        assert document["paths"]["/v1/search"]["post"]["security"]
        assert "/openapi.json" in (await served.http.get("/docs")).text


async def test_where_everybody_may_ask_the_document_wants_no_credential(serving: Serving, workspace: Workspace) -> None:
    workspace.sections["access"] = {"mode": "open"}
    async with serving(with_keys=False, tokens=False) as served:
        document = (await served.http.get("/openapi.json")).json()
        assert not any("security" in operation for path in document["paths"].values() for operation in path.values())
        assert (await served.http.post("/v1/search", json={"query": "soup"})).status_code == 200


async def test_a_page_that_is_not_there_is_a_problem(serving: Serving) -> None:
    async with serving() as served:
        for method, path, status in [("GET", "/nothing", 404), ("GET", "/v1/nothing", 401), ("DELETE", "/healthz", 405)]:
            answer = await served.http.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_request_that_comes_past_its_authentication_is_an_error(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.service.front.GUARDED", "/elsewhere/")
    async with serving() as served:
        assert (await served.post("search", "ada", query="x")).status_code == 500
