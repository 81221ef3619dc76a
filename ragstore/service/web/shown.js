// Words and records of the API in; elements that show them out, as text: nothing here can make elements of a text.

const LONGEST_SHOWN = 3000; // characters of a text before the rest is asked for
const MOST_WORDS = 32; // of a question, that are marked
const MOST_MARKS = 400;
// What turns the direction of a name, or is not seen in it, is written out: a name must not look like another one.
const OVERRIDES = /[\u202d\u202e]/gu; // in a text others may be meant, as Arabic and Hebrew need them
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const written = (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`;

export function plain(text) {
  return text.replace(OVERRIDES, written);
}

export function named(text) {
  return element("bdi", {}, String(text).replace(INVISIBLE, written));
}

export function button(label, action, properties = {}) {
  const made = element("button", { type: "button", className: "quiet", ...properties }, label);
  made.addEventListener("click", action);
  return made;
}

export function place(record) {
  const parts = [named(record.blob)];
  if (record.page !== null) parts.push(`page ${record.page}`);
  if (record.heading) parts.push(named(record.heading));
  if (record.version) parts.push(`version ${record.version}`);
  const shown = element("p", { className: "place" }, ...parts.map((part) => element("span", {}, part)));
  if (record.stale) shown.append(element("span", { className: "stale" }, "changed since; the new text is not indexed yet"));
  return shown;
}

export function title(record) {
  return record.title || record.heading || record.blob.split("/").pop();
}

// -- Words of the question within a text

export function pattern(query) {
  const words = [...new Set(query.match(/[\p{L}\p{N}]+/gu) ?? [])].filter((word) => word.length > 1 || /[^\x00-\x7f]/.test(word));
  if (words.length === 0) return null;
  const longestFirst = words.sort((one, other) => other.length - one.length).slice(0, MOST_WORDS);
  // Scripts without blanks have no word boundaries to look for; elsewhere "art" is not marked within "part".
  const ends = longestFirst.map((word) => (/^[\x00-\u024f]+$/.test(word) ? `(?<![\\p{L}\\p{N}])${word}(?![\\p{L}\\p{N}])` : word));
  return new RegExp(ends.join("|"), "giu");
}

function highlighted(text, words) {
  const parts = [];
  let end = 0;
  for (const found of words === null ? [] : text.matchAll(words)) {
    if (parts.length > 2 * MOST_MARKS) break;
    parts.push(text.slice(end, found.index), element("mark", {}, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

export function passage(whole, words) {
  const text = plain(whole);
  const shown = element("p", { className: "text", dir: "auto" }, ...highlighted(text.slice(0, LONGEST_SHOWN), words));
  if (text.length <= LONGEST_SHOWN) return [shown];
  const more = button(`Show all ${text.length.toLocaleString("en")} characters`, () => {
    shown.replaceChildren(...highlighted(text, words));
    more.remove();
    shown.tabIndex = -1;
    shown.focus();
  });
  shown.append(" \u2026");
  return [shown, more];
}
