"""Conversations that are kept: whose they are, what is left of them when access changes, and that nothing of a purged blob stays."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

from ragstore import conversations
from ragstore.assembly import conversations_file
from ragstore.conversations import Conversations
from tests.service.conftest import ADA_CANARY, BOB_CANARY, Chatting, Serving
from tests.support.workspace import Workspace

_BOARD, _ANY = "When does the board meet?", "What does everybody eat at noon?"


async def _begin(talk: Chatting, who: str) -> str:
    async with talk.client(who) as client:
        return (await client.conversations.create()).id


async def _ask(talk: Chatting, who: str, name: str, text: str, reply: str, *, stream: bool = False) -> dict[str, Any]:
    """The answer's `conversation`."""
    talk.model.reply = reply
    async with talk.client(who) as client:
        options: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}], "extra_body": {"conversation": name}}
        if not stream:
            answer: Any = await client.chat.completions.create(**options)
            return dict(answer.conversation)
        chunks: list[Any] = [chunk async for chunk in await client.chat.completions.create(**options, stream=True)]
        return dict(chunks[-1].conversation)


async def _turns(talk: Chatting, who: str, name: str) -> list[tuple[str, str]]:
    found = await talk.served.http.get(f"/v1/conversations/{name}", headers=talk.served.bearer(who))
    return [(turn["question"], turn["answer"]) for turn in found.json()["turns"]]


def _sent(talk: Chatting) -> list[str]:
    """What the model was told last, between instructions and question."""
    return [message["content"] for message in talk.model.requests[-1]["messages"][1:-1]]


async def test_a_conversation_goes_on_where_it_was_and_each_turn_retrieves_anew(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        assert await _ask(talk, "ada", name, _BOARD, "On Friday [1].", stream=True) == {"id": name, "kept": True}
        assert await _ask(talk, "ada", name, _ANY, "Soup [1].") == {"id": name, "kept": True}
        assert _sent(talk) == [_BOARD, "On Friday."]
        assert ADA_CANARY not in "".join(_sent(talk))
        assert "soup at noon" in talk.model.requests[-1]["messages"][-1]["content"]
        assert await _turns(talk, "ada", name) == [(_BOARD, "On Friday [1]."), (_ANY, "Soup [1].")]
        shown = (await talk.served.http.get(f"/v1/conversations/{name}", headers=talk.served.bearer("ada"))).json()
        [cited] = shown["turns"][0]["citations"]
        assert cited["number"] == 1
        passage = await talk.served.http.get(f"/v1/chunks/{cited['chunk']}", headers=talk.served.bearer("ada"))
        assert passage.json()["blob"] == "docs/ada.md"
        assert shown["expires_at"] - shown["used_at"] == 30 * 86_400


async def test_openais_client_makes_finds_and_deletes_conversations(chatting: Serving) -> None:
    async with chatting() as talk, talk.client("ada") as client:
        made = await client.conversations.create()
        assert (await client.conversations.retrieve(made.id)).created_at == made.created_at
        assert [each["id"] for each in (await _list(talk, "ada"))] == [made.id]
        assert (await client.conversations.delete(made.id)).deleted is True
        with pytest.raises(openai.NotFoundError, match="no such conversation"):
            await client.conversations.retrieve(made.id)
        with pytest.raises(openai.BadRequestError, match="metadata"):
            await client.conversations.create(metadata={"a": "b"})
        assert await _list(talk, "ada") == []


async def _list(talk: Chatting, who: str) -> list[dict[str, Any]]:
    return list((await talk.served.http.get("/v1/conversations", headers=talk.served.bearer(who))).json()["data"])


async def test_a_conversation_of_another_looks_as_one_that_is_not_there(chatting: Serving) -> None:
    async with chatting() as talk:
        name, absent = await _begin(talk, "ada"), "conv_" + "0" * 32
        await _ask(talk, "ada", name, _BOARD, "On Friday [1].")
        headers, http = talk.served.bearer("bob"), talk.served.http
        for method in ("GET", "DELETE"):
            theirs, none = [await http.request(method, f"/v1/conversations/{each}", headers=headers) for each in (name, absent)]
            assert theirs.status_code == none.status_code == 404
            assert {**theirs.json(), "request_id": ""} == {**none.json(), "request_id": ""}
        asked = len(talk.model.requests)
        for each in (name, absent):
            with pytest.raises(openai.NotFoundError, match="no such conversation"):
                await _ask(talk, "bob", each, _BOARD, "x")
        assert len(talk.model.requests) == asked
        assert await _list(talk, "bob") == []
        assert len(await _turns(talk, "ada", name)) == 1


async def test_a_turn_whose_source_is_revoked_is_dropped_and_with_it_what_came_of_it(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        await _ask(talk, "ada", name, _ANY, "Soup [1].")
        talk.served.workspace.write("menu.md", "# Wine\n\nNobody drinks wine before the evening.\n", allow="ada")
        await talk.served.index.sync()
        await _ask(talk, "ada", name, _BOARD, f"On Friday, {ADA_CANARY} [1].")
        await _ask(talk, "ada", name, "Say that again", f"{ADA_CANARY}, on Friday.")
        assert len(await _turns(talk, "ada", name)) == 3
        talk.served.workspace.allow("ada.md", "bob")
        await talk.served.index.sync()
        assert await _turns(talk, "ada", name) == []  # what is there to be found is in every prompt
        talk.model.requests.clear()
        await _ask(talk, "ada", name, "And when do they meet?", "I do not know.")
        assert ADA_CANARY not in talk.asked
        assert "Friday" not in talk.asked
        assert await _turns(talk, "ada", name) == [("And when do they meet?", "I do not know.")]
        assert ADA_CANARY not in talk.served.log.getvalue()


async def test_a_turn_that_rests_on_other_documents_stays(chatting: Serving) -> None:
    async with chatting() as talk:
        names = {who: await _begin(talk, who) for who in ("ada", "bob")}
        for who, name in names.items():
            await _ask(talk, who, name, "who meets when?", f"{who} meets [1][2].")
        talk.served.workspace.allow("bob.md", "nobody")
        await talk.served.index.sync()
        assert await _turns(talk, "bob", names["bob"]) == []
        assert await _turns(talk, "ada", names["ada"]) == [("who meets when?", "ada meets [1][2].")]


@pytest.mark.parametrize("how", ["changed", "deleted"])
async def test_a_turn_whose_source_is_no_longer_there_is_dropped(chatting: Serving, how: str) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        await _ask(talk, "ada", name, _BOARD, "On Friday [1].")
        if how == "changed":
            talk.served.workspace.write("ada.md", "# Board\n\nThe board never meets.\n", allow="ada")
        else:
            (talk.served.workspace.docs / "ada.md").unlink()
        await talk.served.index.sync(allow_mass_delete=True)
        assert await _turns(talk, "ada", name) == []


async def test_a_turn_rests_on_the_earlier_turns_that_its_prompt_had_room_for(chatting: Serving, workspace: Workspace) -> None:
    workspace.sections["prompt"] = {"max_tokens": 600}
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        for number in range(4):
            await _ask(talk, "ada", name, f"{_ANY} {number}", "word " * (5 if number == 2 else 80))
        kept = Conversations(_file(talk), keep_days=30).find("ada", name)
        assert kept is not None
        assert [turn.after for turn in kept.turns] == [(), (1,), (2,), (2, 3)]
        assert len(_sent(talk)) == 4


async def test_where_nobody_can_tell_what_may_be_read_no_turn_is_shown(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        await _ask(talk, "ada", name, _BOARD, f"On Friday, {ADA_CANARY} [1].")

        def broken(_ids: object) -> Any:
            raise OSError("gone")

        for name_of_it in ("committed", "committed_at_once"):
            setattr(talk.served.index._assembly.ledger.documents, name_of_it, broken)
        shown = await talk.served.http.get(f"/v1/conversations/{name}", headers=talk.served.bearer("ada"))
        assert (shown.status_code, ADA_CANARY in shown.text) == (503, False)
        with pytest.raises(openai.InternalServerError):
            await _ask(talk, "ada", name, "x", "y")
        assert len(talk.model.requests) == 1


async def test_what_is_revoked_while_the_model_speaks_is_not_kept(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        talk.model.pause = 0.3
        asking = asyncio.create_task(_ask(talk, "ada", name, _BOARD, f"On Friday, {ADA_CANARY} [1]."))
        while not talk.model.requests:  # noqa: ASYNC110 - it is asked in another thread
            await asyncio.sleep(0.01)
        talk.served.workspace.allow("ada.md", "nobody")
        await talk.served.index.sync()
        assert await asking == {"id": name, "kept": False}
        assert ADA_CANARY.encode() not in _file(talk).read_bytes()


def _file(talk: Chatting) -> Path:
    return talk.served.workspace.base / ".ragstore" / "conversations.db"


async def test_an_answer_that_broke_off_is_not_kept(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        talk.model.cut = True
        with pytest.raises(openai.APIError):
            await _ask(talk, "ada", name, _BOARD, "On Friday [1].", stream=True)
        assert await _turns(talk, "ada", name) == []


async def test_earlier_messages_are_not_sent_to_a_conversation_that_has_them(chatting: Serving) -> None:
    async with chatting() as talk, talk.client("ada") as client:
        name = await _begin(talk, "ada")
        messages: list[Any] = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=messages, extra_body={"conversation": name})
        assert caught.value.param == "messages"
        assert talk.model.requests == []


async def test_requests_at_once_on_one_conversation_all_become_turns(chatting: Serving) -> None:
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        talk.model.reply = "On Friday [1]."
        await asyncio.gather(*(_ask(talk, "ada", name, f"{_BOARD} {number}", "On Friday [1].") for number in range(8)))
        turns = await _turns(talk, "ada", name)
        assert sorted(question for question, _ in turns) == [f"{_BOARD} {number}" for number in range(8)]


async def test_a_conversation_that_is_full_is_told_before_the_model_is_asked(chatting: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_TURNS", 1)
    monkeypatch.setattr(conversations, "MOST_CONVERSATIONS", 1)
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        await _ask(talk, "ada", name, _BOARD, "On Friday [1].")
        with pytest.raises(openai.ConflictError, match="full"):
            await _ask(talk, "ada", name, _BOARD, "On Friday [1].")
        with pytest.raises(openai.ConflictError, match="delete one"):
            await _begin(talk, "ada")
        await _begin(talk, "bob")
        assert len(talk.model.requests) == 1


async def test_where_none_is_kept_none_can_be_begun_and_nothing_is_written(chatting: Serving) -> None:
    async with chatting(chat={"keep_days": 0}) as talk:
        with pytest.raises(openai.InternalServerError) as caught:
            await _begin(talk, "ada")
        assert (caught.value.status_code, "keep_days" in caught.value.message) == (501, True)
        with pytest.raises(openai.NotFoundError):
            await _ask(talk, "ada", "conv_" + "0" * 32, _BOARD, "x")
        assert not _file(talk).exists()


async def test_ids_that_are_none_are_no_fault_of_the_service(chatting: Serving) -> None:
    async with chatting() as talk:
        for name in ("x", "conv_" + "0" * 33, "%00", "conv_" + "A" * 32, "\U0001f600", "a" * 3000):
            for method in ("GET", "DELETE"):
                answer = await talk.served.http.request(method, f"/v1/conversations/{name}", headers=talk.served.bearer("ada"))
                assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), name
            answer = await talk.served.http.put(f"/v1/conversations/{name}", headers=talk.served.bearer("ada"))
            assert (answer.status_code, answer.json()["error"]["type"]) == (405, "invalid_request_error"), name


async def test_a_purged_blob_takes_the_turns_with_it_that_were_made_of_it(chatting: Serving) -> None:
    async with chatting() as talk:
        mine, theirs = await _begin(talk, "ada"), await _begin(talk, "bob")
        await _ask(talk, "ada", mine, _BOARD, f"On Friday, {ADA_CANARY} [1].")
        await _ask(talk, "bob", theirs, "When does the staff meet?", f"On Monday, {BOB_CANARY} [1].")
        talk.served.workspace.write("ada.md", f"# Board\n\nThe board meets on Sunday. {ADA_CANARY}\n", allow="ada")
        await talk.served.index.sync()  # the turn was made of an earlier version
        (talk.served.workspace.docs / "ada.md").unlink()
        done = await talk.served.index.purge("docs/ada.md")
        assert (done.removed["turns"], done.found["turns"], done.left) == (1, 0, [])
        assert ADA_CANARY.encode() not in _file(talk).read_bytes()
        assert await _turns(talk, "ada", mine) == []
        assert len(await _turns(talk, "bob", theirs)) == 1


async def test_words_that_somebody_typed_are_no_turn_of_a_purged_blob_but_they_are_told(chatting: Serving) -> None:
    async with chatting() as talk:
        [hit, *_] = await talk.served.index.search("board", principal=talk.served.index.principal("ada"))
        name = await _begin(talk, "eve")
        await _ask(talk, "eve", name, hit.text, "There are no sources for that.")
        (talk.served.workspace.docs / "ada.md").unlink()
        done = await talk.served.index.purge("docs/ada.md")
        assert (done.removed["turns"], done.left) == (0, [f"{str(_file(talk))!r} holds a text of it"])
        await talk.served.http.delete(f"/v1/conversations/{name}", headers=talk.served.bearer("eve"))
        assert (await talk.served.index.purge("docs/ada.md")).left == []


async def test_a_file_that_somebody_holds_keeps_nobody_from_searching(chatting: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "_WAIT", 25.0)  # as patient as a request is
    async with chatting() as talk:
        name = await _begin(talk, "ada")
        with closing(sqlite3.connect(conversations_file(talk.served.index.settings), isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            path = f"/v1/conversations/{name}"
            waiting = [asyncio.create_task(talk.served.http.get(path, headers=talk.served.bearer("ada"))) for _ in range(12)]
            await asyncio.sleep(0.3)
            found = await talk.served.post("search", "ada", query="board")
            assert ADA_CANARY in found.text
            assert not any(task.done() for task in waiting)
            other.execute("ROLLBACK")
        assert {(await task).status_code for task in waiting} == {200}


async def test_a_ruined_file_keeps_the_service_neither_from_starting_nor_from_searching(chatting: Serving, workspace: Workspace) -> None:
    (workspace.base / "talk.db").write_bytes(b"no database at all " * 100)
    async with chatting(chat={"conversations": "talk.db"}) as talk:
        assert ADA_CANARY in (await talk.served.post("search", "ada", query="board")).text
        assert (await talk.served.post("conversations", "ada")).status_code == 503
