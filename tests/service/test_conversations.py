"""Conversations that are kept: whose they are, what is left of them when access changes, and that nothing of a purged blob stays."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from ragstore import conversations
from ragstore.conversations import Conversations, Turn
from ragstore.errors import ConfigError, OutageError
from tests.service.conftest import ADA_CANARY, BOB_CANARY, Chatting, Serving

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


# Over HTTP.


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


# The file.


@pytest.fixture
def kept(tmp_path: Path) -> Conversations:
    return Conversations(tmp_path / "state" / "conversations.db", keep_days=30)


def _turn(text: str = "words", **options: Any) -> Turn:
    return Turn(question=text, answer=f"about {text}", **options)


def _begun(kept: Conversations, owner: str = "ada") -> str:
    made = kept.begin(owner)
    assert made is not None
    return made.id


def test_the_file_comes_with_the_first_conversation_for_its_owner_alone(kept: Conversations, tmp_path: Path) -> None:
    assert kept.all("ada") == []
    assert kept.find("ada", "conv_x") is None
    assert not kept.add("ada", "conv_x", _turn())
    assert not kept.delete("ada", "conv_x")
    assert (kept.count("0" * 32), kept.erase("0" * 32), kept.files) == (0, 0, [])
    _begun(kept)
    [file] = kept.files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_turn_comes_back_as_it_was(kept: Conversations) -> None:
    name = _begun(kept)
    turn = _turn("größer 北京 \U0001f600 ' \u2028", cited=((1, "a" * 32),), chunks=("a" * 32, "b" * 32), after=())
    assert kept.add("ada", name, turn)
    assert kept.add("ada", name, _turn(after=(1,)))
    found = kept.find("ada", name)
    assert found is not None
    first, second = found.turns
    assert (first.question, first.answer, first.cited, first.chunks) == (turn.question, turn.answer, turn.cited, turn.chunks)
    assert [(each.number, each.after) for each in (first, second)] == [(1, ()), (2, (1,))]
    assert found.chunks == {"a" * 32, "b" * 32}


def test_of_turns_those_stay_that_rest_on_readable_chunks_through_all_turns_before(kept: Conversations) -> None:
    name = _begun(kept)
    for chunks, after in ((("a",), ()), (("b",), (1,)), ((), (2,)), (("a",), ()), ((), ()), (("a", "b"), ()), (("a",), (9,))):
        kept.add("ada", name, _turn(chunks=chunks, after=after))
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.readable({"a"})] == [1, 4, 5]
    assert [turn.number for turn in found.readable({"a", "b"})] == [1, 2, 3, 4, 5, 6]
    assert [turn.number for turn in found.readable(())] == [5]


def test_many_writers_at_once_lose_nothing(kept: Conversations) -> None:
    name = _begun(kept)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: kept.add("ada", name, _turn(str(number), chunks=("c",))), range(60)))
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.turns] == list(range(1, 61))
    assert {turn.question for turn in found.turns} == {str(number) for number in range(60)}


def test_what_was_not_used_for_too_long_is_gone_also_from_the_file(tmp_path: Path) -> None:
    now = [1000.0]
    kept = Conversations(tmp_path / "c.db", keep_days=1, clock=lambda: now[0])
    old, used = _begun(kept), _begun(kept)
    kept.add("ada", old, _turn("halyard"))
    now[0] += 50_000
    kept.add("ada", used, _turn("anchor"))
    now[0] += 50_000
    assert [each.id for each in kept.all("ada")] == [used]
    assert kept.find("ada", old) is None
    assert not kept.add("ada", old, _turn())
    assert b"halyard" in kept.files[0].read_bytes()
    kept.expire()
    assert b"halyard" not in kept.files[0].read_bytes()
    assert b"anchor" in kept.files[0].read_bytes()


def test_a_conversation_takes_no_more_than_its_room(kept: Conversations) -> None:
    name = _begun(kept)
    assert not kept.add("ada", name, _turn("ä" * 600_000))
    assert kept.add("ada", name, _turn("ä" * 200_000))
    assert not kept.add("ada", name, _turn("ä" * 200_000))
    found = kept.find("ada", name)
    assert found is not None
    assert (len(found.turns), found.full) == (1, False)


def test_what_is_erased_takes_with_it_what_was_said_after_it(kept: Conversations) -> None:
    name, other = _begun(kept), _begun(kept, "bob")
    document, another = "0123abcd" + "1" * 24, "fedc4321" + "2" * 24
    for chunks, after in ((("0123abcdff",), ()), (("fedc432100",), (1,)), ((), (2,)), (("fedc432100",), ())):
        kept.add("ada", name, _turn(f"halyard {chunks}", chunks=chunks, after=after))
    kept.add("bob", other, _turn("halyard", chunks=("0123abcd00",)))
    assert (kept.count(document), kept.count(another)) == (2, 2)
    assert kept.erase(document) == 4
    assert (kept.count(document), kept.count(another)) == (0, 1)
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.turns] == [4]
    assert b"0123abcd" not in kept.files[0].read_bytes()


def test_a_file_that_is_damaged_or_newer_says_so(kept: Conversations, tmp_path: Path) -> None:
    _begun(kept)
    [file] = kept.files
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(ConfigError, match="newer"):
        kept.all("ada")
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(OutageError, match="conversations"):
        kept.all("ada")
    with pytest.raises(OutageError, match="conversations"):
        Conversations(tmp_path / "state" / "conversations.db" / "x" / "y.db", keep_days=1).begin("ada")
