"""The web page in a browser: who signs in, what is shown of hostile documents, and that nothing runs or leaves but what it should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import ragstore
from ragstore.service.keys import new_key
from tests.fakes.openai_server import OpenAIServer

_RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
_MARKUP = "<script>document.title='owned'</script> <img src=x onerror=\"document.title='owned'\"> <a href='javascript:0'>halyard</a>"
_ESCAPED = "&lt;img src=x onerror=alert(1)&gt; title"

expect.set_options(timeout=20_000)

needs_browser = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium: apt-get install chromium")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    url: str
    keys: dict[str, str]
    model: OpenAIServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as a process, with a hostile document, one for each of two people, and a model that answers."""
    base = tmp_path_factory.mktemp("page")
    docs = base / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nThe halyard key is rotated every ninety days; its keys are cut anew.\n")
    (docs / "pay.md").write_text("# Pay\n\nThe halyard is paid for by Bob alone.\n")
    (docs / "hostile.html").write_text(
        f"<html><head><title>{_ESCAPED}</title></head><body><p>{_MARKUP.replace('<', '&lt;')} \u202egnp.exe</p></body></html>"
    )
    (docs / "long.txt").write_text("halyard " + "x" * 100_000)
    (docs / "\u202egnp.md").write_text("# \u05d0\u05d1\n\nhalyard \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd\n")
    (base / "tags.json").write_text(
        json.dumps({file.name: {"allow": "bob" if file.name == "pay.md" else "ada"} for file in docs.iterdir()})
    )
    (base / "principals.json").write_text(json.dumps([{"id": name, "name": name, "groups": []} for name in ("ada", "bob")]))
    made = {name: new_key() for name in ("ada", "bob")}
    with OpenAIServer() as model:
        model.reply = 'It is rotated every ninety days [1]. "It is made of gold" [1]. <b>bold</b> [99]'
        lines = [
            'source = {type = "folder", path = "docs", tags = "tags.json"}',
            'embedder = {type = "hash"}',
            "chunking = {size = 4000}",
            'access = {mode = "groups", tag_key = "allow", principals = "principals.json"}',
            f'ask = {{base_url = "{model.base_url}", model = "small", api_key_env = "MODEL_KEY"}}',
            "[service]",
            "rate = 0",
            *[f'[[service.keys]]\nprincipal = "{name}"\nhash = "{digest}"' for name, (_, digest) in made.items()],
        ]
        (base / "ragstore.toml").write_text("\n".join(lines))
        with ragstore.open(base / "ragstore.toml") as index:
            index.sync()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")} | {"MODEL_KEY": "secret"}
        command = [*_RAGSTORE, "serve", "--port", "0", "--json", "--quiet"]
        with subprocess.Popen(command, cwd=base, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
                yield Server(url=url, keys={name: key for name, (key, _) in made.items()}, model=model)
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield launched
        launched.close()


@dataclass(slots=True, kw_only=True)
class Visit:
    """A page that was opened, with all that it asked for and all that went wrong in it."""

    page: Page
    asked: list[str]
    faults: list[str]

    def sign_in(self, key: str, *, keep: bool = False) -> None:
        self.page.get_by_label("API key").fill(key)
        if keep:
            self.page.get_by_label("Keep it in this tab").check()
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_label("What do you look for?")).to_be_visible()

    def ask(self, query: str, way: str = "Search", **options: str) -> None:
        self.page.get_by_label("What do you look for?").fill(query)
        if options and not self.page.get_by_label("Filter").is_visible():
            self.page.get_by_text("Options").click()
        for label, value in options.items():
            self.page.get_by_label(label).fill(value)
        self.page.get_by_role("button", name=way, exact=True).click()


@pytest.fixture
def visit(server: Server, browser: Browser) -> Iterator[Visit]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(20_000)
    seen = Visit(page=page, asked=[], faults=[])
    page.on("request", lambda request: seen.asked.append(request.url))
    page.on("pageerror", lambda error: seen.faults.append(str(error)))
    page.on("dialog", lambda dialog: seen.faults.append(dialog.message))
    page.goto(server.url + "/")
    yield seen
    assert seen.faults == []
    assert all(url.startswith((f"{server.url}/", "data:")) for url in seen.asked)
    assert page.title() == "ragstore"  # no document has had its way
    context.close()


@needs_browser
def test_a_question_finds_passages_with_their_places_and_marked_words(server: Server, visit: Visit) -> None:
    visit.sign_in(server.keys["ada"])
    visit.ask("halyard rotated key")
    hit = visit.page.locator("article", has_text="docs/keys.md").first
    expect(hit.get_by_role("heading")).to_have_text("Keys")
    expect(hit.locator(".score")).to_contain_text(re.compile(r"score \d\.\d{3}"))
    expect(hit.locator(".place")).to_contain_text("Keys")
    assert hit.locator("mark").all_inner_texts() == ["halyard", "key", "rotated"]  # and not within "keys"
    expect(visit.page.get_by_role("status")).to_contain_text("passages")
    hit.get_by_role("button", name="Fetch chunk").click()
    expect(hit.locator("dl")).to_contain_text("docs/keys.md")
    expect(hit.locator("pre")).to_contain_text("ninety days")


@needs_browser
def test_nobody_sees_what_another_may_read_also_after_changing_hands(server: Server, visit: Visit) -> None:
    visit.sign_in(server.keys["bob"])
    visit.ask("halyard")
    expect(visit.page.locator(".hit")).to_have_count(1)
    expect(visit.page.locator(".hit")).to_contain_text("Bob alone")
    visit.page.get_by_role("button", name="Sign out").click()
    expect(visit.page.locator("#results")).to_be_empty()
    visit.sign_in(server.keys["ada"])
    assert visit.page.get_by_label("What do you look for?").input_value() == ""
    visit.ask("halyard Bob alone")
    expect(visit.page.locator(".hit").first).to_be_visible()
    assert "Bob alone" not in visit.page.content()
    assert "pay.md" not in visit.page.content()


@needs_browser
def test_what_a_hostile_document_says_is_text_and_nothing_else(server: Server, visit: Visit) -> None:
    visit.sign_in(server.keys["ada"])
    visit.ask("halyard")
    results = visit.page.locator("#results")
    hit = visit.page.locator("article", has_text="docs/hostile.html").first
    expect(hit.get_by_role("heading")).to_have_text("<img src=x onerror=alert(1)> title")
    expect(hit).to_contain_text("<script>document.title='owned'</script>")
    expect(hit).to_contain_text("\\u202egnp.exe")
    assert results.locator("script, img, iframe, a[href^='javascript']").count() == 0
    turned = visit.page.locator("article", has_text="docs/\\u202egnp.md").first
    expect(turned).to_be_visible()
    assert turned.locator("p.text").evaluate("node => getComputedStyle(node).unicodeBidi") == "plaintext"
    for way in ("Prompt", "Ask"):
        visit.ask("halyard", way)
        expect(visit.page.get_by_role("heading", name="Sources")).to_be_visible()
        assert results.locator("script, img, iframe, b, a[href^='javascript']").count() == 0


@needs_browser
def test_a_very_long_line_neither_widens_the_page_nor_fills_it(server: Server, visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 360, "height": 700})
    visit.sign_in(server.keys["ada"])
    visit.ask("halyard xxx", Filter="path = 'long.txt'")
    hit = visit.page.locator(".hit").first
    expect(hit).to_be_visible()
    assert visit.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    assert len(hit.locator("p.text").inner_text()) < 4_000
    hit.get_by_role("button", name="Show all").click()
    assert len(hit.locator("p.text").inner_text()) > 4_000
    assert visit.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


@needs_browser
def test_a_prompt_is_shown_with_its_tokens_and_sources(server: Server, visit: Visit) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.sign_in(server.keys["ada"])
    visit.ask("halyard", "Prompt", **{"Tokens of a prompt": "1500", "Filter": "path = 'keys.md'"})
    expect(visit.page.locator("#results")).to_contain_text(re.compile(r"\d+ tokens"))
    expect(visit.page.locator(".citations li")).to_have_count(1)
    expect(visit.page.locator("pre").last).to_contain_text("ninety days")
    visit.page.get_by_role("button", name="Copy messages").click()
    expect(visit.page.get_by_role("button", name="Copied")).to_be_visible()
    copied = json.loads(visit.page.evaluate("() => navigator.clipboard.readText()"))
    assert [message["role"] for message in copied] == ["system", "user"]


@needs_browser
def test_an_answer_comes_piece_by_piece_with_links_to_its_sources_and_what_is_wrong_in_it(server: Server, visit: Visit) -> None:
    visit.sign_in(server.keys["ada"])
    visit.ask("halyard", "Ask", Filter="path = 'keys.md'")
    expect(visit.page.get_by_role("status")).to_have_text("The answer is complete.")
    answer = visit.page.locator("article", has=visit.page.get_by_role("heading", name="Answer"))
    expect(answer.locator("p.text")).to_have_text(server.model.reply)
    expect(answer.get_by_role("link")).to_have_count(2)  # [99] leads nowhere
    expect(answer.locator(".problem")).to_contain_text("It is made of gold")
    answer.get_by_role("link").first.click()
    expect(visit.page.locator("#source-1")).to_be_in_viewport()


@needs_browser
def test_an_answer_can_be_stopped(server: Server, visit: Visit) -> None:
    server.model.pause = 0.3
    try:
        visit.sign_in(server.keys["ada"])
        visit.ask("halyard", "Ask")
        visit.page.get_by_role("button", name="Stop").click()
        expect(visit.page.get_by_role("status")).to_have_text("Stopped.")
    finally:
        server.model.pause = 0.0


@needs_browser
def test_a_wrong_key_and_a_wrong_filter_are_told_in_words(server: Server, visit: Visit) -> None:
    visit.page.get_by_label("API key").fill("rs_wrong")
    visit.page.get_by_role("button", name="Sign in").click()
    expect(visit.page.get_by_role("alert")).to_contain_text("not valid")
    expect(visit.page.get_by_label("API key")).to_be_focused()
    visit.sign_in(f" Bearer {server.keys['ada']}\n")
    expect(visit.page.get_by_role("alert")).to_be_empty()
    visit.ask("halyard", Filter="path =")
    expect(visit.page.get_by_role("alert")).to_contain_text("filter: ")
    expect(visit.page.get_by_role("alert")).to_contain_text("request ")
    visit.ask("halyard", Filter="path = 'nowhere'")
    expect(visit.page.get_by_role("status")).to_have_text("Nothing was found that you may read.")


@needs_browser
def test_the_key_is_forgotten_when_the_page_is_reloaded_unless_it_is_to_be_kept(server: Server, visit: Visit) -> None:
    page = visit.page
    visit.sign_in(server.keys["ada"])
    stored = "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert page.evaluate(stored) == '[{},{},""]'
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()
    visit.sign_in(server.keys["ada"], keep=True)
    page.reload()
    expect(page.get_by_label("What do you look for?")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate(stored) == '[{},{},""]'
    assert not any(server.keys["ada"] in url for url in visit.asked)


@needs_browser
def test_all_of_it_can_be_done_from_the_keyboard_and_has_names(server: Server, visit: Visit) -> None:
    page = visit.page
    expect(page.get_by_label("API key")).to_be_focused()  # what is to be done first
    page.keyboard.type(server.keys["ada"])
    page.keyboard.press("Enter")
    expect(page.get_by_label("What do you look for?")).to_be_focused()
    page.keyboard.type("halyard")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    nameless = """() => [...document.querySelectorAll("input, select, button, pre[tabindex]")]
        .filter((node) => node.offsetParent !== null)
        .filter((node) => !(node.labels?.length || node.textContent.trim() || node.getAttribute("aria-label")))
        .map((node) => node.outerHTML)"""
    assert page.evaluate(nameless) == []
    levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map((node) => node.tagName)")
    assert levels[0] == "H1"


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(server: Server, visit: Visit, scheme: Any) -> None:
    page = visit.page
    page.emulate_media(color_scheme=scheme)
    page.get_by_label("API key").fill("rs_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    assert page.evaluate(_CONTRAST) == []
    visit.sign_in(server.keys["ada"])
    for way in ("Ask", "Prompt", "Search"):
        visit.ask("halyard", way)
        expect(page.locator("article").first).to_be_visible()
        expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")
        assert page.evaluate(_CONTRAST) == []


_CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue].map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const found = numbers(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const says = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!says || node.offsetParent === null) continue;
    const [one, other] = [light(numbers(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.tagName} ${node.textContent.slice(0, 40)}`);
  }
  return poor;
}"""
"""WCAG 2.2, 1.4.3: at least 4.5 to 1. Texts with less."""


@needs_browser
def test_where_everybody_may_ask_nobody_signs_in_and_without_a_model_there_is_no_ask(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "menu.md").write_text("soup at noon")
    (tmp_path / "ragstore.toml").write_text(
        'source = {type = "folder", path = "docs"}\nembedder = {type = "hash"}\naccess = {mode = "open"}\n'
    )
    with ragstore.open(tmp_path / "ragstore.toml") as index:
        index.sync()
    command = [*_RAGSTORE, "serve", "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            page = browser.new_page()
            page.goto(json.loads("".join(process.stdout.readline() for _ in range(3)))["url"])
            expect(page.get_by_label("What do you look for?")).to_be_visible()
            expect(page.get_by_role("button", name="Ask")).to_be_hidden()
            expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
            page.get_by_label("What do you look for?").fill("soup")
            page.keyboard.press("Enter")
            expect(page.locator(".hit")).to_contain_text("soup at noon")
            page.close()
        finally:
            process.terminate()
