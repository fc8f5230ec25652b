/**
 * What handlers find in globalThis beside the language (ES2023), in the place of lib "dom" or "webworker": those have much that a plugin
 * does not. In tsconfig.json:
 *
 *     "lib": ["es2023"], "types": ["@quern/sdk/globals"]
 *
 * The README of @quern/sdk has what is special to a plugin.
 */

// Bodies and bytes

type BufferSource = ArrayBufferView<ArrayBuffer> | ArrayBuffer;
type BodyInit = string | BufferSource | Blob | URLSearchParams;
type BlobPart = string | BufferSource | Blob;

interface Blob {
  readonly size: number;
  readonly type: string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  slice(start?: number, end?: number, type?: string): Blob;
  text(): Promise<string>;
}
declare var Blob: { prototype: Blob; new (parts?: Iterable<BlobPart>, options?: { type?: string }): Blob };

interface TextEncoder {
  readonly encoding: string;
  encode(input?: string): Uint8Array<ArrayBuffer>;
  encodeInto(source: string, destination: Uint8Array): { read: number; written: number };
}
declare var TextEncoder: { prototype: TextEncoder; new (): TextEncoder };

interface TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(input?: ArrayBufferView | ArrayBuffer | null, options?: { stream?: boolean }): string;
}
declare var TextDecoder: { prototype: TextDecoder; new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder };

declare function atob(data: string): string;
declare function btoa(data: string): string;
declare function structuredClone<T = any>(value: T, options?: { transfer?: ArrayBuffer[] }): T;

// HTTP

type HeadersInit = Iterable<readonly [string, string]> | Record<string, string> | Headers;

interface Headers {
  append(name: string, value: string): void;
  delete(name: string): void;
  entries(): IterableIterator<[string, string]>;
  forEach(callback: (value: string, name: string, headers: Headers) => void, self?: any): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  keys(): IterableIterator<string>;
  set(name: string, value: string): void;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare var Headers: { prototype: Headers; new (init?: HeadersInit): Headers };

interface Body {
  /** There are no streams. */
  readonly body: null;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  blob(): Promise<Blob>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  json(): Promise<any>;
  text(): Promise<string>;
}

interface RequestInit {
  body?: BodyInit | null;
  headers?: HeadersInit;
  method?: string;
  redirect?: "error" | "follow" | "manual";
  signal?: AbortSignal | null;
}

interface Request extends Body {
  readonly headers: Headers;
  readonly method: string;
  readonly redirect: "error" | "follow" | "manual";
  readonly signal: AbortSignal | null;
  readonly url: string;
  clone(): Request;
}
declare var Request: { prototype: Request; new (input: string | URL | Request, init?: RequestInit): Request };

interface ResponseInit {
  headers?: HeadersInit;
  status?: number;
  statusText?: string;
}

interface Response extends Body {
  readonly headers: Headers;
  readonly ok: boolean;
  readonly redirected: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly type: "basic" | "default";
  readonly url: string;
  clone(): Response;
}
declare var Response: {
  prototype: Response;
  new (body?: BodyInit | null, init?: ResponseInit): Response;
  error(): Response;
  json(value: any, init?: ResponseInit): Response;
  redirect(url: string | URL, status?: number): Response;
};

/** Sends a request, which the manifest has to grant. It waits for the host: requests do not run side by side. */
declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;

interface URL {
  hash: string;
  host: string;
  hostname: string;
  href: string;
  readonly origin: string;
  password: string;
  pathname: string;
  port: string;
  protocol: string;
  search: string;
  readonly searchParams: URLSearchParams;
  username: string;
  toJSON(): string;
  toString(): string;
}
declare var URL: {
  prototype: URL;
  new (url: string | URL, base?: string | URL): URL;
  canParse(url: string | URL, base?: string | URL): boolean;
  parse(url: string | URL, base?: string | URL): URL | null;
};

interface URLSearchParams {
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  entries(): IterableIterator<[string, string]>;
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void, self?: any): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  keys(): IterableIterator<string>;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare var URLSearchParams: {
  prototype: URLSearchParams;
  new (init?: string | Iterable<readonly [string, string]> | Record<string, string> | URLSearchParams): URLSearchParams;
};

// Events

interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
}

interface Event {
  readonly bubbles: boolean;
  readonly cancelable: boolean;
  readonly currentTarget: EventTarget | null;
  readonly defaultPrevented: boolean;
  readonly target: EventTarget | null;
  readonly type: string;
  preventDefault(): void;
  stopImmediatePropagation(): void;
  stopPropagation(): void;
}
declare var Event: { prototype: Event; new (type: string, init?: EventInit): Event };

type EventListenerOrEventListenerObject = ((event: Event) => void) | { handleEvent(event: Event): void };

interface EventTarget {
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | { once?: boolean; signal?: AbortSignal }): void;
  dispatchEvent(event: Event): boolean;
  removeEventListener(type: string, listener: EventListenerOrEventListenerObject | null): void;
}
declare var EventTarget: { prototype: EventTarget; new (): EventTarget };

interface AbortSignal extends EventTarget {
  readonly aborted: boolean;
  onabort: ((this: AbortSignal, event: Event) => any) | null;
  readonly reason: any;
  throwIfAborted(): void;
}
declare var AbortSignal: {
  prototype: AbortSignal;
  abort(reason?: any): AbortSignal;
  any(signals: Iterable<AbortSignal>): AbortSignal;
  timeout(milliseconds: number): AbortSignal;
};

interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare var AbortController: { prototype: AbortController; new (): AbortController };

interface DOMException extends Error {
  readonly code: number;
}
declare var DOMException: { prototype: DOMException; new (message?: string, name?: string): DOMException };

// Random numbers, hashes, HMAC

interface CryptoKey {
  readonly algorithm: { name: "HMAC"; hash: { name: string }; length: number };
  readonly extractable: boolean;
  readonly type: "secret";
  readonly usages: KeyUsage[];
}
declare var CryptoKey: { prototype: CryptoKey };

type KeyUsage = "sign" | "verify";
type HashName = string | { name: string };

interface JsonWebKey {
  alg?: string;
  ext?: boolean;
  k?: string;
  key_ops?: string[];
  kty?: string;
}

interface HmacParams {
  name: string;
  hash: HashName;
  length?: number;
}

interface SubtleCrypto {
  /** SHA-1, SHA-256, SHA-384, SHA-512. */
  digest(algorithm: HashName, data: ArrayBufferView | ArrayBuffer): Promise<ArrayBuffer>;
  exportKey(format: "jwk", key: CryptoKey): Promise<JsonWebKey>;
  exportKey(format: "raw", key: CryptoKey): Promise<ArrayBuffer>;
  generateKey(algorithm: HmacParams, extractable: boolean, usages: readonly KeyUsage[]): Promise<CryptoKey>;
  importKey(format: "jwk", data: JsonWebKey, algorithm: HmacParams, extractable: boolean, usages: readonly KeyUsage[]): Promise<CryptoKey>;
  importKey(format: "raw", data: ArrayBufferView | ArrayBuffer, algorithm: HmacParams, extractable: boolean, usages: readonly KeyUsage[]): Promise<CryptoKey>;
  sign(algorithm: "HMAC" | { name: "HMAC" }, key: CryptoKey, data: ArrayBufferView | ArrayBuffer): Promise<ArrayBuffer>;
  verify(algorithm: "HMAC" | { name: "HMAC" }, key: CryptoKey, signature: ArrayBufferView | ArrayBuffer, data: ArrayBufferView | ArrayBuffer): Promise<boolean>;
}

declare var crypto: {
  readonly subtle: SubtleCrypto;
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
};

// Time, and the log

declare function setTimeout<A extends any[]>(callback: (...parameters: A) => void, delay?: number, ...parameters: A): number;
declare function setInterval<A extends any[]>(callback: (...parameters: A) => void, delay?: number, ...parameters: A): number;
declare function clearTimeout(id: number | undefined): void;
declare function clearInterval(id: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;

declare var performance: {
  readonly timeOrigin: number;
  now(): number;
};

interface Console {
  assert(condition?: boolean, ...values: any[]): void;
  count(label?: string): void;
  countReset(label?: string): void;
  debug(...values: any[]): void;
  dir(value?: any, options?: any): void;
  dirxml(...values: any[]): void;
  error(...values: any[]): void;
  group(...values: any[]): void;
  groupCollapsed(...values: any[]): void;
  groupEnd(): void;
  info(...values: any[]): void;
  log(...values: any[]): void;
  table(value?: any): void;
  time(label?: string): void;
  timeEnd(label?: string): void;
  timeLog(label?: string, ...values: any[]): void;
  trace(...values: any[]): void;
  warn(...values: any[]): void;
}
declare var console: Console;

/** What capabilities.env of the manifest lists: there is no process of Node. */
declare var process: { readonly env: Record<string, string | undefined> };

/** Files that the build takes as a text. */
declare module "*.txt" {
  const text: string;
  export default text;
}

// What tests import from Node, without its types: with those, handlers would seem to have Buffer and process as well. See @types/node.

declare module "node:assert";
declare module "node:assert/strict";
declare module "node:test";
