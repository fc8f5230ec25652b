// What the page is built with. Nothing parses HTML: what producers and handlers wrote becomes text nodes and attributes.

const build = (create) => (tag, props, ...children) => {
  const node = create(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) node[name] = value;
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  const present = children.flat(Infinity).filter((child) => child != null && child !== false && child !== "");
  node.append(...present.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return node;
};

/** h makes an element: h("a", {href, onclick}, "text", [more]). Missing and false children and properties are left out. */
export const h = build((tag) => document.createElement(tag));

/** s makes an element of SVG. */
export const s = build((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

// Control characters, and those that turn the direction of a line or take no room: a name must not pass for another one.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** visible shows each hidden character by its number. */
export const visible = (text) => text.replace(hidden, (c) => (c === "\r" ? "" : `⟨${c.charCodeAt(0).toString(16).padStart(4, "0")}⟩`));

const handlers = ["onclick", "onsubmit", "oninput", "onchange"];

/**
 * morph makes an element like another one, in place: focus, selection, scrolling and what a person typed or unfolded stay.
 * An element with an ID stays the same among its siblings. One with data-own looks after its content itself; it is replaced
 * when that name changes.
 */
export function morph(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  for (const name of handlers) from[name] = to[name];
  if (from.dataset.own) return;
  const wanted = [...to.childNodes];
  wanted.forEach((next, i) => {
    const moved = next.id && [...from.children].find((child) => child.id === next.id);
    if (moved && moved !== from.childNodes[i]) from.insertBefore(moved, from.childNodes[i]);
    const old = from.childNodes[i];
    if (!old || !alike(old, next)) from.insertBefore(next, old ?? null);
    else if (next.nodeType !== Node.TEXT_NODE) morph(old, next);
    else if (old.data !== next.data) old.data = next.data;
  });
  while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

const alike = (a, b) => a.nodeName === b.nodeName && a.id === b.id && a.dataset?.own === b.dataset?.own;

/** link leads to a place in the page: link("text", "acme", "queues", "mail"), or with {query} as the last part. */
export function link(text, ...to) {
  return h("a", { href: place(...to) }, text);
}

/** place is the address of a view, for href. */
export function place(...parts) {
  const query = typeof parts.at(-1) === "object" ? new URLSearchParams(parts.pop()).toString() : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}

/** table has columns of {head, cell(row), number} and a caption for those who cannot see it. */
export function table(caption, columns, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "empty" }, coded(empty));
  const kind = (column) => ({ class: column.number && "number" });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    // On a phone a row is a card: the roles stay what the elements are no longer shown as.
    h("table", { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { scope: "col", role: "columnheader", ...kind(c) }, c.head)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map((c) => cell(c, c.cell(row), kind(c))))))));
}

// On a phone what is nothing takes no line of a card.
const cell = (column, value, kind) => h("td", { role: "cell", "data-head": column.head, "data-nothing": ["0", "0 ms", "–"].includes(value), ...kind }, value);

/** facts is a list of names and values, without those that are missing. */
export function facts(...pairs) {
  const known = pairs.filter(([, value]) => value != null && value !== false && value !== 0 && value.length !== 0);
  return h("dl", null, known.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** section has a heading. */
export const section = (title, ...content) => h("section", { id: title.toLowerCase().replace(/\W+/g, "-") }, h("h2", null, title), content);

/** coded shows what stands between backticks as code. */
export const coded = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));

/** version is the beginning of a digest, which hosts write with the name of its hash or without. */
export const version = (digest = "") => digest.replace(/^sha256:/, "").slice(0, 12);

export const badge = (word, kind = word) => h("span", { class: `badge ${kind}` }, word);

const numbers = new Intl.NumberFormat("en");

export const count = (n) => numbers.format(n ?? 0);

/** many is a number with its noun. */
export const many = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** size is a number of bytes for people. */
export function size(bytes) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (bytes < 1024) return `${Number.isInteger(bytes) ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return `${bytes.toFixed(1)} GiB`;
}

/** span is a duration in seconds for people. */
export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0.001) return "0 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [unit, length, lesser, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (whole < length) continue;
    const rest = Math.floor((whole % length) / part);
    return `${Math.floor(whole / length)} ${unit}${rest ? ` ${rest} ${lesser}` : ""}`;
  }
  return `${whole} s`;
}

/** clock is a moment, given in seconds, in the time of this machine. */
export function clock(seconds) {
  if (!seconds) return null;
  const date = new Date(seconds * 1000);
  const pad = (n) => String(n).padStart(2, "0");
  const text = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}
