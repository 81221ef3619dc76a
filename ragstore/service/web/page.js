// What somebody asks in; passages, prompts and answers of the API out. Everything that documents say is put in as text, never as markup:
// nothing here can make elements of a text, and the page's policy forbids it.

import { button, element, named, passage, pattern, place, plain, title } from "./shown.js";

const KEY = "ragstore.credential";

const at = (id) => document.getElementById(id);
const [signIn, question, results, status, problem] = ["sign-in", "question", "results", "status", "problem"].map(at);

let credential = sessionStorage.getItem(KEY);
let model = null; // the one that answers, where one does
let underWay = new AbortController();

class Refused extends Error {
  constructor(message, { status: code, requestId }) {
    super(message);
    this.status = code;
    this.requestId = requestId;
  }
}

// -- The API

async function call(path, body, signal) {
  const headers = credential === null ? {} : { Authorization: `Bearer ${credential}` };
  const options = { headers, signal, redirect: "error", credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" };
  if (body !== null) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached. Try again when it is back.", { status: 0, requestId: null });
  }
  if (answer.ok) return answer;
  throw await refusal(answer);
}

async function refusal(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // no JSON: something between us and the service has answered
  }
  const wrong = (told.errors ?? []).map((each) => `${each.at.replace(/^body\./, "")}: ${each.problem}`).join("; ");
  const detail = told.detail ?? told.error?.message ?? `The server answers ${answer.status}.`;
  const wait = answer.headers.get("retry-after");
  const message = [detail, wrong, answer.status === 429 && wait ? `Wait ${wait} s.` : ""].filter(Boolean).join(" \u2014 ");
  return new Refused(message, { status: answer.status, requestId: answer.headers.get("x-request-id") });
}

// -- Signing in and out

async function modelThatAnswers(signal) {
  // An answer of any kind says that this credential, or none, is enough; 501, that no model answers here.
  try {
    return (await (await call("v1/models", null, signal)).json()).data[0].id;
  } catch (error) {
    if (error instanceof Refused && [404, 501].includes(error.status)) return null;
    throw error;
  }
}

function showSignIn() {
  question.hidden = at("sign-out").hidden = true;
  signIn.hidden = false;
  at("credential").focus();
}

function showQuestion() {
  signIn.hidden = true;
  question.hidden = false;
  question.querySelector("[value=ask]").hidden = model === null;
  at("sign-out").hidden = credential === null;
  at("query").focus();
}

function forget() {
  credential = null;
  sessionStorage.removeItem(KEY);
}

async function enter() {
  try {
    model = await modelThatAnswers(fresh());
    showQuestion();
    say("");
  } catch (error) {
    if (error.name === "AbortError") return;
    const anonymous = credential === null;
    if (error.status === 401 || error.status === 403) forget();
    if (error.status === 401 && anonymous) say("");
    else complain(error);
    showSignIn();
  }
}

signIn.addEventListener("submit", async (event) => {
  event.preventDefault();
  // A header takes printable ASCII; what else was pasted with it belongs to no key.
  credential = at("credential").value.replace(/^\s*Bearer\s+/i, "").replace(/[^\x21-\x7e]/g, "");
  at("credential").value = "";
  say("Signing in\u2026");
  await enter();
  if (credential !== null && at("keep").checked) sessionStorage.setItem(KEY, credential);
});

at("sign-out").addEventListener("click", () => {
  underWay.abort();
  forget();
  results.replaceChildren();
  question.reset();
  say("Signed out.");
  showSignIn();
});

// -- Asking

function fresh() {
  underWay.abort();
  underWay = new AbortController();
  return underWay.signal;
}

function say(text) {
  status.textContent = text;
  problem.replaceChildren();
  reveal(status);
}

// On a small screen the options may fill it.
function reveal(told) {
  if (told.textContent !== "" && told.getBoundingClientRect().bottom > window.innerHeight) told.scrollIntoView({ block: "start" });
}

function complain(error) {
  status.textContent = "";
  const told = error instanceof Refused ? error : new Refused("This page has a fault; the console says more.", { status: 0 });
  if (told !== error) console.error(error);
  const shown = element("div", { className: "problem" }, element("p", {}, told.message));
  if (told.requestId) shown.append(element("p", { className: "id" }, `request ${told.requestId}`));
  problem.replaceChildren(shown);
  reveal(problem);
}

function asked(way) {
  const text = (id) => at(id).value.trim() || null;
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  const filter = text("filter");
  if (way === "ask") return { model, messages: [{ role: "user", content: text("query") }], stream: true, ...(filter && { filter }) };
  const body = { query: text("query"), filter, legs: at("legs").value, neighbours: number("neighbours"), limit: Number(at("limit").value) };
  return way === "search" ? body : { ...body, template: at("template").value || null, max_tokens: number("max-tokens") };
}

const WAYS = { search: showHits, prompt: showPrompt, ask: showAnswer };
const PATHS = { search: "v1/search", prompt: "v1/prompt", ask: "v1/chat/completions" };

question.addEventListener("submit", async (event) => {
  event.preventDefault();
  const way = event.submitter?.value ?? "search";
  const signal = fresh();
  const body = asked(way);
  say(way === "ask" ? "Looking for passages\u2026" : "Searching\u2026");
  results.replaceChildren();
  results.setAttribute("aria-busy", "true");
  try {
    await WAYS[way](await call(PATHS[way], body, signal), at("query").value, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    complain(error);
    if (error.status === 401) {
      forget();
      showSignIn();
    }
  } finally {
    if (signal === underWay.signal) results.removeAttribute("aria-busy");
  }
});

// -- Passages

async function showHits(answer, query) {
  const { hits } = await answer.json();
  const words = pattern(query);
  results.replaceChildren(element("ol", { className: "plain" }, ...hits.map((hit) => element("li", {}, hitCard(hit, words)))));
  say(hits.length === 0 ? "Nothing was found that you may read." : `${hits.length} ${hits.length === 1 ? "passage" : "passages"}`);
}

function hitCard(hit, words) {
  const whole = element("div", { className: "whole" });
  const fetching = button("Fetch chunk", async () => {
    fetching.disabled = true;
    try {
      whole.replaceChildren(...record(await (await call(`v1/chunks/${encodeURIComponent(hit.chunk)}`, null, underWay.signal)).json()));
    } catch (error) {
      if (error.name !== "AbortError") {
        const gone = error.status === 404 ? "It is not there any more, or not for you." : error.message;
        whole.replaceChildren(element("p", { className: "problem" }, gone));
      }
    } finally {
      fetching.disabled = false;
    }
  });
  whole.setAttribute("aria-live", "polite");
  return element(
    "article",
    { className: "card hit" },
    element(
      "header",
      {},
      element("h3", {}, named(title(hit))),
      element("span", { className: "score", title: "comparable within one answer only" }, `score ${hit.score.toFixed(3)}`),
    ),
    place(hit),
    ...passage(hit.text, words),
    element("div", { className: "buttons" }, fetching, copying("Copy text", () => hit.text)),
    whole,
  );
}

function record(chunk) {
  const told = { Chunk: chunk.chunk, Blob: chunk.blob, Span: `${chunk.start}\u2013${chunk.end}`, Version: chunk.version, ETag: chunk.etag };
  const rows = Object.entries(told).filter(([, value]) => value !== null);
  return [
    element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, named(value))])),
    element("pre", { className: "text", dir: "auto", tabIndex: 0, "aria-label": "The chunk as it stands now" }, plain(chunk.text)),
  ];
}

function copying(label, text) {
  const made = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      made.textContent = "Copied";
    } catch {
      made.textContent = "The browser does not let this page copy"; // it does over HTTPS, and on this machine
    }
    setTimeout(() => (made.textContent = label), 2000);
  });
  made.setAttribute("aria-live", "polite");
  return made;
}

// -- Prompts

async function showPrompt(answer) {
  const { messages, citations, tokens } = await answer.json();
  const shown = messages.map((message) =>
    element(
      "section",
      {},
      element("h3", {}, message.role === "system" ? "Instructions (system)" : `Message (${message.role})`),
      element("pre", { className: "text", dir: "auto", tabIndex: 0, "aria-label": `Message of ${message.role}` }, message.content),
    ),
  );
  results.replaceChildren(
    element(
      "article",
      { className: "card" },
      element("h2", {}, "Prompt"),
      element("p", { className: "hint" }, `${tokens.toLocaleString("en")} tokens. What documents say stands in fences, as data.`),
      element("div", { className: "buttons" }, copying("Copy messages as JSON", () => JSON.stringify(messages, null, 2))),
      ...shown,
    ),
    sources(citations),
  );
  say(`A prompt of ${tokens} tokens with ${citations.length} ${citations.length === 1 ? "source" : "sources"}`);
}

function sources(citations) {
  const items = citations.map((citation) =>
    element(
      "li",
      { id: `source-${citation.number}`, value: citation.number },
      element("strong", {}, named(title(citation))),
      citation.cited === false ? element("span", { className: "hint" }, " (not cited)") : null,
      place(citation),
    ),
  );
  const list = items.length === 0 ? element("p", { className: "hint" }, "There are none.") : element("ol", { className: "citations" }, ...items);
  return element("article", { className: "card" }, element("h2", {}, "Sources"), list);
}

// -- Answers

async function showAnswer(answer, _query, signal) {
  const said = element("p", { className: "text", dir: "auto" });
  const stop = button("Stop", () => underWay.abort());
  const buttons = element("div", { className: "buttons" }, stop);
  const card = element("article", { className: "card" }, element("h2", {}, "Answer"), said, buttons);
  results.replaceChildren(card);
  say("Answering\u2026");
  signal.addEventListener("abort", () => {
    stop.remove();
    if (signal === underWay.signal) say("Stopped.");
  });
  let text = "";
  let last = {};
  for await (const event of events(answer)) {
    if (event.error) throw new Refused(event.error.message, { status: 200, requestId: answer.headers.get("x-request-id") });
    const piece = event.choices?.[0]?.delta?.content ?? "";
    text += piece;
    said.append(piece);
    if (event.citations) last = event;
  }
  if (signal.aborted) return;
  const citations = last.citations ?? [];
  const known = new Set(citations.map((citation) => citation.number));
  said.replaceChildren(...linked(text, known));
  buttons.replaceChildren(copying("Copy answer", () => text));
  card.append(...grounded(last.grounding));
  results.append(sources(citations));
  say("The answer is complete.");
}

// A mark such as [2] leads to its source, where there is one of this number.
function linked(text, known) {
  return text.split(/(\[\d{1,4}\])/).map((part) => {
    const number = Number(part.slice(1, -1));
    if (!/^\[\d+\]$/.test(part) || !known.has(number)) return part;
    return element("a", { href: `#source-${number}`, "aria-label": `source ${number}` }, part);
  });
}

function grounded(found) {
  if (!found) return [];
  const wrong = found.problems.map((each) => element("li", {}, element("q", {}, named(each.text)), ` \u2014 ${each.why}`));
  const share = `${found.grounded} of ${found.statements} statements cite a source that is there.`;
  return [
    element("p", { className: "hint" }, found.statements === 0 ? "It makes no statement that could cite a source." : share),
    ...(wrong.length === 0 ? [] : [element("div", { className: "problem" }, element("p", {}, "Not in the sources:"), element("ul", {}, ...wrong))]),
  ];
}

// Server-sent events with JSON in them, to the end or to "[DONE]".
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data === "[DONE]") return;
      if (data !== "") yield JSON.parse(data);
    }
  }
}

await enter();
