// The API as the page uses it: every view reads through call, every stream through follow.

const storage = "quern-token"; // of this tab alone; a token is in no address
const base = new URL("v1", new URL(".", import.meta.url));

/** Problem is an error that the API describes, or that the page found before it asked (400); status 0 when there was no answer. */
export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
  /** lost tells whether the request may have been done although nobody says so. */
  get lost() {
    return this.status === 0 || this.status >= 502;
  }
  /** passing tells whether the same request may succeed later. */
  get passing() {
    return this.lost || this.status === 429;
  }
}

export const token = {
  get: () => sessionStorage.getItem(storage),
  set: (value) => (value ? sessionStorage.setItem(storage, value) : sessionStorage.removeItem(storage)),
};

let skew = 0; // of this machine's clock behind the server's, in ms

/** now is the server's time in seconds. */
export const now = () => (Date.now() + skew) / 1000;

/** path encodes its values: path`/tenants/${tenant}/queues/${queue}`. */
export const path = (words, ...values) => String.raw({ raw: words }, ...values.map(encodeURIComponent));

/** query adds what is given to a path. */
export function query(to, values) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) for (const one of [value].flat()) if (one) given.append(name, one);
  return given.size ? `${to}?${given}` : to;
}

async function send(to, { method = "GET", body, raw, signal, once } = {}) {
  const headers = {};
  if (/[^\x21-\x7e]/.test(token.get() ?? "")) throw new Problem(401, "no token has such characters: copy it again");
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  if (once) headers["Idempotency-Key"] = once;
  if (raw != null) headers["Content-Type"] = "application/octet-stream";
  let response;
  try {
    response = await fetch(base + to, { method, headers, signal, body: raw ?? (body && JSON.stringify(body)), cache: "no-store", redirect: "error" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "Quern does not answer: its process may have ended, or the network is down");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const details = (problem.errors ?? []).map((e) => `${e.location ?? ""} ${e.message ?? ""}`.trim());
  throw new Problem(response.status, [problem.detail ?? `the answer is ${response.status}`, ...details].join(": "));
}

/** exact keeps a number of JSON as it was written where a browser would change its digits, for JSON.stringify alone. */
export const exact = (value, { source } = {}) =>
  typeof value === "number" && source !== undefined && source !== String(value) && JSON.rawJSON ? JSON.rawJSON(source) : value;

/** call asks the API, and returns the answer's JSON; undefined if it has none. */
export async function call(to, options) {
  const response = await send(to, options);
  const date = Date.parse(response.headers.get("Date"));
  if (date && Math.abs(date - Date.now() - skew) > 2000) skew = date - Date.now();
  if (response.status === 204) return undefined;
  // A key that is a JSON pointer has a value of a filter, which goes back as it came.
  return JSON.parse(await response.text(), (key, value, context) => (key.startsWith("/") ? exact(value, context) : value));
}

/** bytes reads a payload. */
export const bytes = async (to, options) => new Uint8Array(await (await send(to, options)).arrayBuffer());

const silence = 40_000; // a stream sends a ping every 15 s

/**
 * follow reads a stream of events until signal ends, and connects anew when it breaks. handle gets the event's name and its
 * data; true from it ends the stream. lost is told of each break. While nobody looks at the page it holds no connection: a browser
 * opens six to a server, for all its tabs.
 */
export async function follow(to, signal, handle, lost = () => {}) {
  for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 10_000)) {
    await seen(signal);
    const stream = new AbortController();
    document.addEventListener("visibilitychange", () => document.hidden && stream.abort(), { signal: stream.signal });
    let quiet;
    const heard = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => stream.abort(), silence);
    };
    try {
      heard();
      const response = await send(to, { signal: AbortSignal.any([signal, stream.signal]) });
      for await (const [name, data] of events(response.body)) {
        heard();
        pause = 500;
        if (handle(name, data)) return;
      }
    } catch (error) {
      if (error instanceof Problem && !error.passing) throw error;
    } finally {
      clearTimeout(quiet);
      stream.abort();
    }
    if (!signal.aborted) lost();
    await sleep(pause, signal);
  }
}

/** events are those of a body of Server-Sent Events, as [name, data]. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.event) yield [fields.event, JSON.parse(fields.data)];
    }
  }
}

/** seen waits until somebody looks at the page, or signal ends. */
export async function seen(signal) {
  while (document.hidden && !signal.aborted) {
    const changed = new AbortController();
    document.addEventListener("visibilitychange", () => changed.abort(), { once: true });
    await sleep(60_000, AbortSignal.any([signal, changed.signal]));
  }
}

/** sleep ends after some ms, or when signal does. */
export const sleep = (ms, signal) => new Promise((wake) => {
  const timer = setTimeout(done, signal.aborted ? 0 : ms);
  function done() {
    clearTimeout(timer);
    signal.removeEventListener("abort", done);
    wake();
  }
  signal.addEventListener("abort", done);
});
