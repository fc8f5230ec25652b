// Outside of Quern there is no host to call. The engine provides the module "@quern/sdk" itself: this file is what Node finds, such
// as in a unit test. Errors work; whatever would call the host throws.

export class QuernError extends Error {
  constructor(code, call, message = `${call}: there is no host (${code})`) {
    super(message);
    this.name = "QuernError";
    this.code = code;
    this.call = call;
  }
}

export class Retry extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "Retry";
    this.delay = options?.delay;
  }
}

export class Fatal extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "Fatal";
  }
}

const noHost = (call) => () => {
  throw new QuernError("ESTATE", call, `${call}: there is no host: this code does not run in Quern. Pass the function in, or run the plugin with quern plugin test (ESTATE)`);
};

const all = (of, ...names) => Object.fromEntries(names.map((name) => [name, noHost(`${of}.${name}`)]));

export const log = Object.assign(noHost("log"), all("log", "trace", "debug", "info", "warn", "error"));
export const progress = noHost("progress");
export const checkpoint = all("checkpoint", "save", "load", "text", "json");
export const kv = (name) => ({ name, ...all("kv", "get", "text", "json", "set", "delete", "increment", "swap", "list") });
export const http = noHost("http");
export const enqueue = noHost("enqueue");
export const publish = noHost("publish");
export const secrets = all("secrets", "get", "bytes");
export const config = all("config", "get");
