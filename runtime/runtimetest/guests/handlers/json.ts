// Parses its input, JSON, into a tree; adds up what an order costs and weighs; and writes the order with the sums.
// See JSON in handlers.go. What is not JSON ends it with 65.

// @ts-ignore: decorators of the compiler
@external("quern_v1", "input_size")
declare function inputSize(): i32;

// @ts-ignore
@external("quern_v1", "input_read")
declare function inputRead(offset: u32, to: usize, capacity: u32): i32;

// @ts-ignore
@external("quern_v1", "output_write")
declare function outputWrite(from: usize, size: u32): i32;

function input(): ArrayBuffer {
  const bytes = new ArrayBuffer(inputSize());
  inputRead(0, changetype<usize>(bytes), bytes.byteLength);
  return bytes;
}

function output(bytes: ArrayBuffer): void {
  outputWrite(changetype<usize>(bytes), bytes.byteLength);
}

// ---- the same for all hosts

enum Kind { Null, Boolean, Number, Text, Array, Object }

class Value {
  number: f64 = 0;
  text: string = "";
  items: Value[] = [];
  names: string[] = []; // of the items of an object

  constructor(public kind: Kind) {}

  member(name: string): Value {
    const i = this.names.indexOf(name);
    return i < 0 ? new Value(Kind.Null) : this.items[i];
  }

  write(to: string[]): void {
    if (this.kind == Kind.Null) to.push("null");
    else if (this.kind == Kind.Boolean) to.push(this.number != 0 ? "true" : "false");
    else if (this.kind == Kind.Number) {
      const whole = <i64>this.number;
      to.push(<f64>whole == this.number ? whole.toString() : this.number.toString());
    } else if (this.kind == Kind.Text) to.push(quote(this.text));
    else {
      to.push(this.kind == Kind.Object ? "{" : "[");
      for (let i = 0; i < this.items.length; i++) {
        if (i > 0) to.push(",");
        if (this.kind == Kind.Object) to.push(quote(this.names[i]) + ":");
        this.items[i].write(to);
      }
      to.push(this.kind == Kind.Object ? "}" : "]");
    }
  }
}

function quote(text: string): string {
  let quoted = '"', from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    quoted += text.substring(from, i);
    if (c == 0x0a) quoted += "\\n";
    else if (c < 0x20) quoted += "\\u" + c.toString(16).padStart(4, "0");
    else quoted += "\\" + String.fromCharCode(c);
    from = i + 1;
  }
  return quoted + text.substring(from) + '"';
}

class Parser {
  at: i32 = 0;
  wrong: bool = false;

  constructor(public text: string) {}

  next(): i32 { // -1 at the end
    for (; this.at < this.text.length; this.at++) {
      const c = this.text.charCodeAt(this.at);
      if (c != 0x20 && c != 0x0a && c != 0x09 && c != 0x0d) return c;
    }
    return -1;
  }

  take(c: i32): bool {
    if (this.next() != c) return false;
    this.at++;
    return true;
  }

  word(word: string, value: Value): Value {
    if (this.text.substr(this.at, word.length) != word) this.wrong = true;
    this.at += word.length;
    return value;
  }

  value(): Value {
    const c = this.next();
    if (c == 0x7b) return this.items(Kind.Object, 0x7d);
    if (c == 0x5b) return this.items(Kind.Array, 0x5d);
    if (c == 0x74) {
      const yes = new Value(Kind.Boolean);
      yes.number = 1;
      return this.word("true", yes);
    }
    if (c == 0x66) return this.word("false", new Value(Kind.Boolean));
    if (c == 0x6e) return this.word("null", new Value(Kind.Null));
    if (c == 0x22) {
      const text = new Value(Kind.Text);
      text.text = this.string();
      return text;
    }
    return this.number();
  }

  items(kind: Kind, end: i32): Value {
    const list = new Value(kind);
    this.at++;
    if (this.take(end)) return list;
    do {
      if (kind == Kind.Object) {
        this.next();
        list.names.push(this.string());
        if (!this.take(0x3a)) this.wrong = true;
      }
      list.items.push(this.value());
    } while (!this.wrong && this.take(0x2c));
    if (!this.take(end)) this.wrong = true;
    return list;
  }

  number(): Value {
    const from = this.at;
    while (this.at < this.text.length && "+-.0123456789Ee".includes(this.text.charAt(this.at))) this.at++;
    const value = new Value(Kind.Number);
    value.number = parseFloat(this.text.substring(from, this.at));
    if (isNaN(value.number)) this.wrong = true;
    return value;
  }

  string(): string {
    if (!this.take(0x22)) this.wrong = true;
    let text = "", from = this.at;
    for (; this.at < this.text.length; this.at++) {
      const c = this.text.charCodeAt(this.at);
      if (c == 0x22) {
        text += this.text.substring(from, this.at++);
        return text;
      }
      if (c != 0x5c) continue;
      text += this.text.substring(from, this.at++) + this.escape();
      from = this.at + 1;
    }
    this.wrong = true;
    return text;
  }

  escape(): string { // stands on the last character of it then
    const c = this.text.charAt(this.at);
    const i = '"\\/bfnrt'.indexOf(c);
    if (i >= 0 && c != "") return '"\\/\b\f\n\r\t'.charAt(i);
    if (c != "u") this.wrong = true;
    const digits = this.text.substr(this.at + 1, 4);
    this.at += 4;
    return String.fromCharCode(<i32>parseInt(digits, 16));
  }
}

function reckon(order: Value): void {
  let total: f64 = 0, weight: f64 = 0;
  const lines = order.member("lines").items;
  for (let i = 0; i < lines.length; i++) {
    const quantity = lines[i].member("quantity").number;
    const weights = lines[i].member("weights").items;
    total += quantity * lines[i].member("price").number;
    for (let j = 0; j < weights.length; j++) weight += quantity * weights[j].number;
  }
  order.member("total").number = total;
  order.member("weight").number = weight;
}

export function quern_handle(): i32 {
  const parser = new Parser(String.UTF8.decode(input()));
  const order = parser.value();
  if (parser.wrong || parser.next() >= 0) return 65;
  reckon(order);
  const written: string[] = [];
  order.write(written);
  output(String.UTF8.encode(written.join("")));
  return 0;
}
