// The page: who looks, where, and what is shown there.

import { me } from "./actions.js";
import { call, Problem, seen, sleep, token } from "./api.js";
import { coded, h, morph, place } from "./dom.js";
import { Live } from "./live.js";
import { releases } from "./releases.js";
import { schedule, schedules } from "./schedules.js";
import { task } from "./task.js";
import * as topics from "./topics.js";
import * as views from "./views.js";

const main = document.querySelector("main");
const header = document.querySelector("header");
const trouble = document.querySelector("#trouble");

// The views of a tenant by the first word behind it, with their names in the navigation and the keys behind g.
const menu = [
  ["", "Overview", "o", views.overview], ["queues", "Queues", "q", views.queues], ["search", "Search", "s", views.search],
  ["dead", "Dead letters", "d", views.dead], ["nodes", "Nodes", "n", views.nodes], ["plugins", "Plugins", "p", views.plugins],
  ["schedules", "Schedules", "c", schedules], ["topics", "Topics", "t", topics.topics], ["jobs", "Jobs", "j", views.jobs], ["store", "Store", "k", views.buckets], ["audit", "Audit", "a", views.audit],
];
const single = {
  queues: views.queue, plugins: releases, tasks: task, jobs: views.job, schedules: schedule, topics: topics.topic, publications: topics.publication, subscriptions: topics.subscription,
};

let tenants = [];
let live = null; // of the tenant that is shown
let leaving = new AbortController(); // ends what the present view does
let news = new AbortController(); // makes the present view read again
let again = () => {}; // shows it again with what was read
let lively = false; // whether it reads no more than what is followed anyway
const wake = () => news.abort();

/** read is the place that the address names. */
function read() {
  const [words, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: words.split("/").filter(Boolean).map(decode), search: new URLSearchParams(query) };
}

const decode = (word) => {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
};

const go = (...to) => (location.hash = place(...to));

/** followed are the queues of a tenant, followed until another one is shown. */
function followed(tenant) {
  if (live?.tenant === tenant) return live;
  live?.end.abort();
  const end = new AbortController();
  live = new Live(tenant, end.signal, () => lively && wake(), refused);
  live.end = end;
  return live;
}

/** open shows the view of the address. */
function open() {
  leaving.abort();
  leaving = new AbortController();
  document.querySelector("dialog").close(); // what it says is of the view before
  tell("");
  const { parts: [tenant, word = "", name], search } = read();
  if (!tenant && tenants.length === 1) return location.replace(place(tenants[0]));
  const make = !tenant ? views.tenants : name !== undefined ? single[word] : menu.find(([w]) => w === word)?.[3];
  navigate(tenant, word);
  if (!make) return show("Nothing here", h("p", null, "No view has this address: choose one above."));
  const view = make({ tenant, search, go, again: () => again(), live: tenant && followed(tenant) }, name);
  document.title = `${view.title} · ${tenant ?? "Quern"}`;
  keep(view, leaving.signal);
}

const show = (title, content) => morph(main, h("main", { id: "main", tabindex: "-1" }, h("h1", { tabindex: "-1" }, title), content));

/** keep shows a view, and again now and then; a lively one whenever something changed, at most once a second. */
async function keep(view, signal) {
  main.setAttribute("aria-busy", "true");
  lively = Boolean(view.lively);
  again = () => {}; // nothing of it was read yet
  for (let shown = false; !signal.aborted;) {
    let pause = view.every ?? 5000;
    news = new AbortController();
    try {
      const data = await view.load(signal);
      if (signal.aborted) return;
      if (!shown) main.replaceChildren();
      again = () => show(view.title, view.show(data));
      again();
      if (!shown) {
        main.querySelector("h1").focus({ preventScroll: true });
        view.start?.(main, signal);
      }
      shown = true;
      tell("");
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 401) return refused(problem);
      if (problem.passing) {
        if (!shown) show(view.title, h("p", { class: "empty" }, "Nothing of this view has been read yet."));
        tell(`${problem.message}. Trying again${shown ? "; what is shown may be old" : ""}.`);
        pause = 2000;
      } else {
        show(view.title, h("p", { class: "wrong", role: "alert" }, problem.message));
        again = () => {};
        shown = false;
      }
    }
    await sleep(1000, signal);
    await sleep(pause - 1000, AbortSignal.any([signal, news.signal]));
    await seen(signal);
  }
}

/** tell shows what is wrong with the connection, or that nothing is. */
function tell(text) {
  if (trouble.textContent !== text) trouble.textContent = text;
}

function navigate(tenant, word) {
  const chooser = tenants.length > 1 && tenant && h("label", null, "Tenant", h("select", { onchange: (e) => go(e.target.value) },
    tenants.map((name) => h("option", { value: name, selected: name === tenant }, name))));
  header.replaceChildren(
    h("a", { class: "brand", href: "#/" }, "Quern"),
    h("nav", { "aria-label": "Views" }, tenant && menu.map(([path, name]) =>
      h("a", { href: place(tenant, ...(path ? [path] : [])), "aria-current": path === word && "page" }, name))),
    chooser || "",
    h("span", { class: "faint" }, `${me.name} (${me.role})`),
    token.get() ? h("button", { type: "button", onclick: signOut }, "Sign out") : "");
}

function signOut() {
  token.set(null);
  begin();
}

/** refused asks for a token. */
function refused(problem) {
  leaving.abort();
  live?.end.abort();
  live = null;
  if (problem.status !== 401) return tell(problem.message);
  header.replaceChildren(h("a", { class: "brand", href: "#/" }, "Quern"));
  const submit = (event) => {
    event.preventDefault();
    token.set(event.target.elements.token.value.trim());
    begin();
  };
  main.replaceChildren();
  show("Sign in", h("form", { class: "actions", onsubmit: submit },
    h("label", null, "Token", h("input", { name: "token", type: "password", required: true, autocomplete: "off" })),
    h("button", { type: "submit" }, "Sign in"),
    token.get() ? h("p", { class: "wrong", role: "alert" }, problem.message) : h("p", null, coded("`quern admin token` makes one. This tab keeps it until it is closed."))));
  main.querySelector("input").focus();
}

/** begin finds out who looks, and at which tenants. */
async function begin() {
  for (;;) {
    try {
      const who = await call("/me");
      Object.assign(me, who, { payloads: who.payloads !== false });
      tenants = (await call("/tenants?limit=1000")).items.map((t) => t.tenant);
      tell("");
      return open();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 401) return refused(problem);
      if (!problem.passing) return tell(problem.message);
      tell(`${problem.message}. Trying again.`);
      await sleep(2000, new AbortController().signal);
    }
  }
}

/** help tells the keys. */
function help() {
  const dialog = document.querySelector("dialog");
  dialog.replaceChildren(h("div", null, h("h2", { id: "dialog-title" }, "Keys"),
    h("dl", null, menu.map(([, name, key]) => h("div", null, h("dt", null, `g ${key}`), h("dd", null, name))),
      h("div", null, h("dt", null, "/"), h("dd", null, "First field")), h("div", null, h("dt", null, "?"), h("dd", null, "These keys"))),
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close"))));
  dialog.showModal();
}

let before = "";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
  const tenant = read().parts[0];
  const chosen = before === "g" && tenant && menu.find(([, , key]) => key === event.key);
  before = event.key;
  if (chosen) go(tenant, ...(chosen[0] ? [chosen[0]] : []));
  else if (event.key === "?") help();
  else if (event.key === "/") main.querySelector("input")?.focus();
  else return;
  event.preventDefault();
});
addEventListener("hashchange", open);
addEventListener("acted", wake);
begin();
