// HTTP requests, to the hosts that the manifest grants.
import * as sys from "./sys";
import { bytesOf, slot, textAt, textOf, utf8 } from "./bytes";
import { check, Failure } from "./errors";
import { Fields, quote, Reader } from "./json";

/** A request: `new Request("POST", url).header("Accept", "text/plain").body("hi").send()`. */
export class Request {
  private headers: Map<string, string[]> = new Map();
  private content: ArrayBuffer = new ArrayBuffer(0);
  private time: i64 = 0;

  constructor(private method: string, private url: string) {}

  /** Adds a value of a header. */
  header(name: string, value: string): this {
    const values: string[] = this.headers.has(name) ? this.headers.get(name) : [];
    values.push(value);
    this.headers.set(name, values);
    return this;
  }

  /** Sets the body, a string or bytes: at most 16 MiB. */
  body<T>(value: T): this {
    this.content = bytesOf(value);
    return this;
  }

  /** Shortens the host's time limit, which ends with the last byte of the answer. In milliseconds. */
  timeout(ms: i64): this {
    this.time = ms;
    return this;
  }

  /**
   * Sends the request and returns the answer, of any status. Redirects are not followed. EAGAIN if there is no answer, or not in time;
   * an answer with the status 0 if the call failed.
   */
  send(failure: Failure | null = null): Answer {
    const fields = new Fields();
    const names = this.headers.keys();
    for (let i = 0; i < names.length; i++) {
      fields.json(names[i], "[" + this.headers.get(names[i]).map<string>((value) => quote(value)).join(",") + "]");
    }
    const head = utf8(
      new Fields().text("method", this.method).text("url", this.url).object("headers", fields).integer("timeout_ms", this.time).toString(),
    );
    const body = this.content;
    const size = check("http", sys.http(changetype<usize>(head), head.byteLength, changetype<usize>(body), body.byteLength), failure, shown(this.method, this.url));
    return size < 0 ? new Answer() : Answer.read(slot(size));
  }
}

/** What errors tell of a request: nothing that may be secret. */
function shown(method: string, url: string): string {
  return url.includes("@") ? method : method + " " + url.split("?")[0];
}

/** The answer to a request. */
export class Answer {
  status: i32 = 0;
  /** The values of each name, which is in lower case. */
  headers: Map<string, string[]> = new Map();
  /** As it was sent. */
  body: ArrayBuffer = new ArrayBuffer(0);

  /** The body as UTF-8. */
  get text(): string {
    return textOf(this.body);
  }

  /** The first value of a header; null if the answer does not have it. */
  header(name: string): string | null {
    const key = name.toLowerCase();
    return this.headers.has(key) ? this.headers.get(key)[0] : null;
  }

  static read(slot: ArrayBuffer): Answer {
    const answer = new Answer();
    const size = load<u32>(changetype<usize>(slot));
    answer.body = slot.slice(4 + size);
    const reader = new Reader(textAt(changetype<usize>(slot) + 4, size));
    reader.take(0x7b);
    for (let name = reader.member(); name !== null; name = reader.member()) {
      if (name == "status") {
        answer.status = <i32>parseInt(reader.word());
      } else if (name == "headers") {
        reader.take(0x7b);
        for (let key = reader.member(); key !== null; key = reader.member()) answer.headers.set(key, reader.texts());
      } else {
        reader.skip();
      }
    }
    return answer;
  }
}
