// As much JSON as quern_v1 needs: objects that are sent, and the head of an HTTP answer.

const HEX = "0123456789abcdef";

/** A text as JSON. */
export function quote(text: string): string {
  const parts: string[] = []; // joined once: memory is never freed
  let plain = 0; // where the part begins that is not in parts yet
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    parts.push(text.substring(plain, i));
    parts.push(c < 0x20 ? "\\u00" + HEX.charAt(c >> 4) + HEX.charAt(c & 15) : "\\" + text.charAt(i));
    plain = i + 1;
  }
  parts.push(text.substring(plain));
  return '"' + parts.join("") + '"';
}

/** A JSON object that is being written: `new Fields().text("name", name).integer("times", 3)`. */
export class Fields {
  private members: string[] = [];

  /** Adds a member whose value is JSON already. */
  json(name: string, value: string): this {
    this.members.push(quote(name) + ":" + value);
    return this;
  }

  text(name: string, value: string): this {
    return this.json(name, quote(value));
  }

  texts(name: string, values: string[]): this {
    const parts: string[] = [];
    for (let i = 0; i < values.length; i++) parts.push(quote(values[i]));
    return this.json(name, "[" + parts.join(",") + "]");
  }

  integer(name: string, value: i64): this {
    return this.json(name, value.toString());
  }

  /** Adds a number; what JSON does not have is null. */
  float(name: string, value: f64): this {
    return this.json(name, isFinite(value) ? value.toString() : "null");
  }

  bool(name: string, value: bool): this {
    return this.json(name, value ? "true" : "false");
  }

  object(name: string, value: Fields): this {
    return this.json(name, value.toString());
  }

  toString(): string {
    return "{" + this.members.join(",") + "}";
  }
}

/** The text that a string of JSON stands for, without its marks. */
function unescaped(text: string): string {
  const units = new StaticArray<u16>(text.length);
  let size = 0;
  for (let i = 0; i < text.length; i++) {
    let c = text.charCodeAt(i);
    if (c == 0x5c) {
      c = text.charCodeAt(++i);
      const named = "bfnrt".indexOf(String.fromCharCode(c));
      if (named >= 0) c = "\b\f\n\r\t".charCodeAt(named);
      if (c == 0x75) {
        c = <i32>parseInt(text.substring(i + 1, i + 5), 16);
        i += 4;
      }
    }
    units[size++] = <u16>c;
  }
  return String.UTF16.decodeUnsafe(changetype<usize>(units), <usize>size << 1);
}

/** Reads JSON that the host has written. */
export class Reader {
  private at: i32 = 0;

  constructor(private source: string) {}

  /** Whether a mark comes next, which is then behind. */
  take(mark: i32): bool {
    while (this.at < this.source.length && this.source.charCodeAt(this.at) <= 0x20) this.at++;
    const taken = this.at < this.source.length && this.source.charCodeAt(this.at) == mark;
    if (taken) this.at++;
    return taken;
  }

  /** A number, true, false or null, as it is written. */
  word(): string {
    const from = this.at;
    while (this.at < this.source.length && !",]} \n\r\t".includes(this.source.charAt(this.at))) this.at++;
    return this.source.substring(from, this.at);
  }

  /** A string, whose first mark comes next. */
  text(): string {
    if (!this.take(0x22)) return "";
    const from = this.at;
    let escapes = false;
    for (; this.at < this.source.length && this.source.charCodeAt(this.at) != 0x22; this.at++) {
      if (this.source.charCodeAt(this.at) != 0x5c) continue;
      escapes = true;
      this.at++;
    }
    const text = this.source.substring(from, this.at++);
    return escapes ? unescaped(text) : text;
  }

  /** The strings of an array. */
  texts(): string[] {
    const out: string[] = [];
    if (!this.take(0x5b)) return out;
    while (!this.take(0x5d) && this.at < this.source.length) {
      out.push(this.text());
      this.take(0x2c);
    }
    return out;
  }

  /** Passes over a value of any kind. */
  skip(): void {
    for (let depth = 0; this.at < this.source.length; ) {
      if (this.take(0x7b) || this.take(0x5b)) depth++;
      else if (this.take(0x7d) || this.take(0x5d)) depth--;
      else if (this.source.charCodeAt(this.at) == 0x22) this.text();
      else if (!this.take(0x2c) && !this.take(0x3a)) this.word();
      if (depth <= 0) return;
    }
  }

  /** The name of the next member of an object; null at its end. */
  member(): string | null {
    this.take(0x2c);
    if (this.at >= this.source.length || this.take(0x7d)) return null;
    const name = this.text();
    this.take(0x3a);
    return name;
  }
}
