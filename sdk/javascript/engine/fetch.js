// fetch with Headers, Request, Response and Blob, on the function http of quern_v1. A request ends before fetch returns: the
// guest waits for the host. Bodies are bytes; there are no streams.

import { bytesOf, isBytes, parseJSON } from "../lib/bytes.js";
import { endOf } from "./events.js";
import { QuernError } from "../lib/errors.js";
import { http, shown } from "../lib/sdk.js";
import { url as urls } from "./url.js";

const names = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

function nameOf(name) {
  if (!names.test(String(name))) throw new TypeError(`header ${JSON.stringify(String(name))}: not a valid name`);
  return String(name).toLowerCase();
}

function valueOf(name, value) {
  const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
  if (/[\0\r\n]/.test(text)) throw new TypeError(`header ${name}: the value has a line break or a zero`);
  return text;
}

export class Headers {
  #values = new Map(); // lists, by names in lower case

  constructor(init) {
    if (init === undefined || init === null) return;
    if (typeof init !== "object") throw new TypeError("Headers are made of an object, pairs or Headers");
    const pairs = typeof init[Symbol.iterator] === "function" ? [...init] : Object.entries(init);
    for (const pair of pairs) {
      const [name, value, ...more] = pair;
      if (value === undefined || more.length > 0) throw new TypeError("a header is a pair of a name and a value");
      this.append(name, value);
    }
  }
  append(name, value) {
    name = nameOf(name);
    this.#values.set(name, [...(this.#values.get(name) ?? []), valueOf(name, value)]);
  }
  set(name, value) {
    name = nameOf(name);
    this.#values.set(name, [valueOf(name, value)]);
  }
  get(name) { return this.#values.get(nameOf(name))?.join(", ") ?? null; }
  has(name) { return this.#values.has(nameOf(name)); }
  delete(name) { this.#values.delete(nameOf(name)); }
  getSetCookie() { return [...(this.#values.get("set-cookie") ?? [])]; }
  *entries() {
    for (const name of [...this.#values.keys()].sort()) {
      if (name === "set-cookie") for (const value of this.#values.get(name)) yield [name, value];
      else yield [name, this.#values.get(name).join(", ")];
    }
  }
  *keys() { for (const [name] of this.entries()) yield name; }
  *values() { for (const [, value] of this.entries()) yield value; }
  forEach(callback, self) { for (const [name, value] of this.entries()) callback.call(self, value, name, this); }
  [Symbol.iterator]() { return this.entries(); }
}

let blobBytes; // the bytes of a Blob, without a promise

export class Blob {
  static { blobBytes = (blob) => blob.#bytes; }
  #bytes;
  #type;
  constructor(parts = [], { type = "" } = {}) {
    const all = [...parts].map((part) => (part instanceof Blob ? part.#bytes : isBytes(part) ? asArray(part) : native.encode(String(part))));
    this.#bytes = new Uint8Array(all.reduce((size, bytes) => size + bytes.length, 0));
    let at = 0;
    for (const bytes of all) {
      this.#bytes.set(bytes, at);
      at += bytes.length;
    }
    this.#type = String(type).toLowerCase();
  }
  get size() { return this.#bytes.length; }
  get type() { return this.#type; }
  async bytes() { return this.#bytes.slice(); }
  async arrayBuffer() { return this.#bytes.slice().buffer; }
  async text() { return native.decode(this.#bytes); }
  slice(from = 0, to = this.size, type = "") { return new Blob([this.#bytes.slice(from, to)], { type }); }
}

const asArray = (bytes) => (bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytesOf(bytes));

// Returns the bytes and the content type of what a body may be made of.
function extract(body) {
  if (body === undefined || body === null) return [undefined, undefined];
  if (isBytes(body)) return [asArray(body).slice(), undefined];
  if (body instanceof urls().URLSearchParams) return [native.encode(body.toString()), "application/x-www-form-urlencoded;charset=UTF-8"];
  if (body instanceof Blob) return [blobBytes(body), body.type || undefined];
  if (typeof body === "object" && typeof body[Symbol.asyncIterator] === "function") throw new TypeError("a body cannot be a stream: there are none here");
  return [native.encode(String(body)), "text/plain;charset=UTF-8"];
}

class Body {
  #bytes;
  #used = false;
  _take(body, headers) {
    const [bytes, type] = extract(body);
    this.#bytes = bytes;
    if (type !== undefined && !headers.has("content-type")) headers.set("content-type", type);
  }
  _copy() {
    if (this.#used) throw new TypeError("the body has been read");
    return this.#bytes;
  }
  #read() {
    if (this.#used) throw new TypeError("the body has been read");
    this.#used = this.#bytes !== undefined;
    return this.#bytes ?? new Uint8Array();
  }
  get body() { return null; }
  get bodyUsed() { return this.#used; }
  async bytes() { return this.#read(); }
  async arrayBuffer() {
    const bytes = this.#read();
    return bytes.byteLength === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer;
  }
  #readText() { return native.decode(this.#read()).replace(/^\ufeff/, ""); }
  async text() { return this.#readText(); }
  async json() { return parseJSON(this.#readText(), `${this._what ?? "the body"} is not JSON`); }
  async blob() { return new Blob([this.#read()], { type: this.headers.get("content-type") ?? "" }); }
}

const usual = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

export class Request extends Body {
  constructor(input, init = {}) {
    super();
    const from = input instanceof Request ? input : undefined;
    this.url = from ? from.url : parsed(input);
    const method = String(init.method ?? from?.method ?? "GET");
    this.method = usual.includes(method.toUpperCase()) ? method.toUpperCase() : method;
    this.headers = new Headers(init.headers ?? from?.headers);
    this.redirect = init.redirect ?? from?.redirect ?? "follow";
    this.signal = init.signal ?? from?.signal ?? null;
    const body = init.body !== undefined ? init.body : from?._copy();
    if (body !== undefined && body !== null && (this.method === "GET" || this.method === "HEAD")) throw new TypeError(`a request by ${this.method} has no body`);
    this._take(body, this.headers);
  }
  clone() { return new Request(this, { body: this._copy() }); }
}

function parsed(input) {
  try {
    return new (urls().URL)(String(input)).href;
  } catch (cause) {
    throw new TypeError(`${shown(input)}: not an absolute URL`, { cause });
  }
}

export class Response extends Body {
  constructor(body, { status = 200, statusText = "", headers } = {}) {
    super();
    if (!(status >= 200 && status <= 599)) throw new RangeError(`a status of ${status}: write 200 to 599`);
    this.status = status;
    this.statusText = String(statusText);
    this.headers = new Headers(headers);
    this.url = "";
    this.redirected = false;
    this.type = "default";
    this._take(body, this.headers);
  }
  get ok() { return this.status >= 200 && this.status <= 299; }
  clone() {
    const copy = new Response(this._copy(), this);
    return asAnswer(copy, this._what, { url: this.url, redirected: this.redirected, type: this.type });
  }
  static json(value, init) {
    const response = new Response(JSON.stringify(value), init);
    if (!new Headers(init?.headers).has("content-type")) response.headers.set("content-type", "application/json");
    return response;
  }
  static error() { return Object.assign(new Response(), { status: 0, type: "error" }); }
  static redirect(url, status = 302) { return new Response(null, { status, headers: { location: String(url) } }); }
}

// Headers that the Fetch Standard does not let a caller set, and the host refuses.
const forbidden = /^(connection|content-length|expect|forwarded|host|http2-settings|keep-alive|te|trailer|transfer-encoding|upgrade|proxy|proxy-.*|x-forwarded-.*|x-http-method(-override)?|x-method-override)$/;
const MOST_REDIRECTS = 20;

// Sends one request and returns the answer as it is.
function send(method, url, headers, body, signal) {
  signal?.throwIfAborted();
  const lists = {};
  for (const name of headers.keys()) if (!forbidden.test(name)) lists[name] = [headers.get(name)];
  const left = endOf(signal) - native.now();
  try {
    return http({ method, url, headers: lists, body, timeout: left === Infinity ? undefined : Math.max(left, 1) });
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof QuernError)) throw error;
    throw Object.assign(new TypeError(`fetch: ${error.message.replace(/^http /, "")}`), { code: error.code });
  }
}

export async function fetch(input, init) {
  const { URL } = urls();
  const request = new Request(input, init);
  let { method, url } = request;
  let body = request._copy();
  const headers = new Headers(request.headers);
  if (!headers.has("accept")) headers.set("accept", "*/*");
  for (let redirects = 0; ; redirects++) {
    const answer = send(method, url, headers, body, request.signal);
    const { status } = answer;
    const to = [301, 302, 303, 307, 308].includes(status) ? answer.headers.location?.[0] : undefined;
    if (to === undefined || request.redirect === "manual") return responseOf(answer, method, url, redirects > 0);
    if (request.redirect === "error") throw new TypeError(`fetch: ${shown(url)} redirects to ${shown(to)}`);
    if (redirects === MOST_REDIRECTS) throw new TypeError(`fetch: ${shown(request.url)} has redirected ${MOST_REDIRECTS} times`);
    const next = new URL(to, url);
    if (next.origin !== new URL(url).origin) for (const name of ["authorization", "cookie"]) headers.delete(name);
    if ((status === 303 && method !== "HEAD") || (status <= 302 && method === "POST")) {
      method = "GET";
      body = undefined;
      for (const name of ["content-encoding", "content-language", "content-location", "content-type"]) headers.delete(name);
    }
    url = next.href;
  }
}

// what names the answer in errors.
const asAnswer = (response, what, properties) => Object.assign(Object.defineProperty(response, "_what", { value: what }), properties);

function responseOf(answer, method, url, redirected) {
  const response = new Response([204, 205, 304].includes(answer.status) ? null : answer.body, { status: answer.status });
  for (const [name, values] of Object.entries(answer.headers)) for (const value of values) response.headers.append(name, value);
  return asAnswer(response, `fetch: the answer of ${method} ${shown(url)}`, { url, redirected, type: "basic" });
}
