"""Tokens that are valid, and attacks with tokens that are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typing_extensions import override

from ragstore.config import TokenSettings
from ragstore.errors import ConfigError, TransientError
from ragstore.service.problems import RefusedError
from ragstore.service.signing import SigningKeys, fetch_document
from ragstore.service.tokens import Tokens
from tests.service.conftest import AUDIENCE, ISSUER, Issuer, Serving, claims, ec_key, public, rsa_key, token


def _encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _by_shared_secret(secret: bytes, **header: Any) -> str:
    signed = f"{_encoded({'alg': 'HS256', 'kid': 'one', 'typ': 'JWT', **header})}.{_encoded(claims())}"
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _public_pem() -> bytes:
    return rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _with_claims_of_another(made: str) -> str:
    header, _, signature = made.split(".")
    return f"{header}.{_encoded(claims(oid='bob'))}.{signature}"


_NOW = int(time.time())
_ATTACKS: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: f"{_encoded({'alg': 'none', 'kid': 'one'})}.{_encoded(claims())}.",
    "no algorithm, in other letters": lambda: f"{_encoded({'alg': 'nOnE', 'kid': 'one'})}.{_encoded(claims())}.",
    "the public key as a shared secret": lambda: _by_shared_secret(_public_pem()),
    "the public JWK as a shared secret": lambda: _by_shared_secret(json.dumps(public("one", rsa_key())).encode()),
    "an empty shared secret": lambda: _by_shared_secret(b""),
    "an algorithm that is not allowed": lambda: token(algorithm="RS512"),
    "a key of another kind": lambda: token(key=ec_key(), kid="one", algorithm="ES256"),
    "signed by somebody else": lambda: token(key=rsa_key("other")),
    "a key that the token brings itself": lambda: token(key=rsa_key("other"), headers={"jwk": public("one", rsa_key("other"))}),
    "an address of keys that the token brings": lambda: token(key=rsa_key("other"), headers={"jku": "https://evil.example/keys"}),
    "an unknown key id": lambda: token(kid="two"),
    "no key id": lambda: token(kid=None),
    "a critical extension": lambda: token(headers={"crit": ["x"], "x": 1}),
    "a token for another purpose": lambda: token(headers={"typ": "logout+jwt"}),
    "another audience": lambda: token(aud="api://other"),
    "no audience": lambda: token(aud=None),
    "an audience that begins so": lambda: token(aud=AUDIENCE + "/x"),
    "another issuer": lambda: token(iss="https://login.example/other/v2.0"),
    "an issuer with a slash more": lambda: token(iss=ISSUER + "/"),
    "no issuer": lambda: token(iss=None),
    "expired": lambda: token(exp=_NOW - 120),
    "without an end": lambda: token(exp=None),
    "an end that is no number": lambda: token(exp="tomorrow"),
    "not valid yet": lambda: token(nbf=_NOW + 3600),
    "claims that were exchanged": lambda: _with_claims_of_another(token()),
    "a signature that was cut off": lambda: token().rpartition(".")[0] + ".",
    "oversized": lambda: token(padding="x" * 20_000),
    "no token": lambda: "abc",
    "nested without end": lambda: f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.",
    "claims that are no object": lambda: "e30.W10.",
    "not ASCII": lambda: "é.é.é",
}


@pytest.mark.parametrize("attack", _ATTACKS)
async def test_a_token_that_proves_nothing_is_refused(attack: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await Issuer().tokens().claims(_ATTACKS[attack]())
    assert refused.value.problem.status == 401
    assert refused.value.problem.headers["WWW-Authenticate"] == 'Bearer realm="ragstore", error="invalid_token"'
    assert refused.value.problem.detail == "the credential is not valid here, or no longer; get a new one"


async def test_a_valid_token_is_taken_whichever_allowed_key_signs_it() -> None:
    tokens = Issuer().tokens()
    assert (await tokens.claims(token()))["oid"] == "ada"
    assert (await tokens.claims(token(key=ec_key(), kid="curve", algorithm="ES256")))["oid"] == "ada"
    assert (await tokens.claims(token(aud=["api://other", AUDIENCE])))["oid"] == "ada"
    assert (await tokens.claims(token(headers={"typ": "at+jwt"})))["oid"] == "ada"
    assert (await Issuer().tokens(audience=["a", AUDIENCE]).claims(token()))["oid"] == "ada"


async def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    now = int(time.time())
    assert await Issuer().tokens().claims(token(exp=now - 30, nbf=now + 30))
    with pytest.raises(RefusedError):
        await Issuer().tokens(leeway=0).claims(token(exp=now - 30))


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS1"])
def test_an_algorithm_without_a_public_key_cannot_be_configured(algorithm: str) -> None:
    with pytest.raises(ValueError, match="algorithms"):
        TokenSettings.model_validate({"issuer": ISSUER, "audience": AUDIENCE, "algorithms": [algorithm]})


@pytest.mark.parametrize("address", ["http://login.example", "ftp://login.example", "login.example", "https://"])
def test_keys_are_fetched_only_from_where_nobody_can_forge_them(address: str) -> None:
    with pytest.raises(ConfigError, match="https://"):
        SigningKeys(issuer=address)
    with pytest.raises(ConfigError, match="https://"):
        SigningKeys(issuer=ISSUER, jwks_url=address)


async def test_made_up_key_ids_lead_to_one_look_at_the_issuer_in_half_a_minute() -> None:
    issuer = Issuer()
    tokens = issuer.tokens()
    await tokens.claims(token())
    for number in range(20):
        issuer.now += 1
        with pytest.raises(RefusedError):
            await tokens.claims(token(kid=f"made-up-{number}"))
    assert issuer.asked == 1
    issuer.now += 30
    for number in range(20):
        with pytest.raises(RefusedError):
            await tokens.claims(token(kid=f"made-up-{number}"))
    assert issuer.asked == 2


async def test_a_new_key_of_the_issuer_is_found_and_a_withdrawn_one_ends() -> None:
    issuer = Issuer()
    tokens = issuer.tokens()
    await tokens.claims(token())
    issuer.keys = [public("next", rsa_key("next"))]
    issuer.now += 31
    assert await tokens.claims(token(key=rsa_key("next"), kid="next"))
    with pytest.raises(RefusedError):
        await tokens.claims(token())


async def test_a_key_that_was_withdrawn_ends_within_the_hour_whoever_asks() -> None:
    issuer = Issuer()
    tokens = issuer.tokens()
    await tokens.claims(token())
    issuer.keys = [public("next", rsa_key("next"))]
    issuer.now += 3601
    with pytest.raises(RefusedError):
        await tokens.claims(token())


async def test_an_issuer_that_is_away_keeps_nobody_out_for_a_day_and_lets_nobody_in_after_it() -> None:
    issuer = Issuer()
    tokens = issuer.tokens()
    await tokens.claims(token())
    issuer.failing = TransientError("away")
    issuer.now += 20 * 3600
    assert await tokens.claims(token())
    issuer.now += 5 * 3600
    with pytest.raises(TransientError):
        await tokens.claims(token())


async def test_a_key_is_used_for_nothing_but_what_it_is_for() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer = Issuer(
        keys=[
            public("weak", weak),
            public("other algorithm", rsa_key(), alg="PS256"),
            {**public("for encryption", rsa_key()), "use": "enc"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        ]
    )
    tokens = issuer.tokens()
    for key, kid in ((weak, "weak"), (rsa_key(), "other algorithm"), (rsa_key(), "for encryption")):
        with pytest.warns() if key is weak else _nothing(), pytest.raises(RefusedError):  # the library warns of a weak key
            await tokens.claims(token(key=key, kid=kid))
    with pytest.raises(RefusedError):
        await tokens.claims(_by_shared_secret(b"secret", kid="shared"))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


async def test_whoever_a_valid_token_does_not_name_may_not_ask(serving: Serving) -> None:
    async with serving() as served:
        for wrong in ({"oid": None}, {"oid": "two words"}, {"groups": "staff"}, {"_claim_names": {"groups": "src1"}}):
            headers = {"Authorization": f"Bearer {token(**wrong)}"}
            answer = await served.http.post("/v1/search", json={"query": "x"}, headers=headers)
            assert answer.status_code == 403, wrong
            assert "two words" not in answer.text
        told = [line["detail"] for line in served.lines() if line["event"] == "service.refused"]
        assert len(told) == 4
        assert "oid" in told[0]


async def test_attacks_on_a_route_are_refused_before_the_request_is_read(serving: Serving) -> None:
    async with serving() as served:
        for make in _ATTACKS.values():
            made = make()
            headers = {"Authorization": f"Bearer {made}".encode()}
            answer = await served.http.post("/v1/search", content=b"{", headers=headers)
            assert answer.status_code == 401
        assert "token_" in served.log.getvalue()
        assert token().split(".")[1][:40] not in served.log.getvalue()


class _Issuing(http.server.BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def issuing() -> Iterator[tuple[str, dict[str, tuple[int, bytes]]]]:
    _Issuing.answers = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Issuing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", _Issuing.answers
    server.shutdown()
    server.server_close()
    thread.join()


async def test_keys_are_found_by_the_discovery_document_of_the_issuer_itself(issuing: tuple[str, dict[str, tuple[int, bytes]]]) -> None:
    url, answers = issuing
    answers["/keys"] = 200, json.dumps({"keys": [public("one", rsa_key())]}).encode()
    found = "/.well-known/openid-configuration"
    answers[found] = 200, json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode()
    settings = TokenSettings(issuer=url, audience=AUDIENCE)
    wrong: Any
    assert await Tokens(settings).claims(token(iss=url))
    for wrong in (
        {"issuer": url + "/x", "jwks_uri": f"{url}/keys"},
        {"issuer": url},
        {"issuer": url, "jwks_uri": "http://evil.example/"},
        [],
    ):
        answers[found] = 200, json.dumps(wrong).encode()
        with pytest.raises(TransientError):
            await Tokens(settings).claims(token(iss=url))


async def test_an_answer_that_is_moved_wrong_or_endless_is_none(issuing: tuple[str, dict[str, tuple[int, bytes]]]) -> None:
    url, answers = issuing
    answers.update({"/moved": (302, b""), "/large": (200, b"x" * (1 << 20) + b"x"), "/down": (500, b"")})
    for path in ("/moved", "/large", "/down", "/none"):
        with pytest.raises(TransientError):
            await fetch_document(url + path)
    with pytest.raises(TransientError):
        await fetch_document("http://127.0.0.1:1/")
