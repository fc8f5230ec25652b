// Statements on the PostgreSQL databases that the manifest grants.
import * as sys from "./sys";
import { bytesOf, slot, textAt, utf8 } from "./bytes";
import { check, Errno, fail, Failure, SQLError } from "./errors";
import { found } from "./task";
import { formatTime, NO_TIME, parseTime } from "./time";

// The kinds of values.
const NULL: u8 = 0;
const TEXT: u8 = 1;
const BYTES: u8 = 2;

const HEAD = 5; // the size of a value's kind and length

/**
 * The parameters of a statement, from $1: `new Params().add(7).add("Ada").time(now()).nil()`. PostgreSQL gets their types from the
 * statement: write $1::int8 where it cannot.
 */
export class Params {
  private kinds: u8[] = [];
  private values: ArrayBuffer[] = [];

  /**
   * Adds a number, a bool, bytes (as bytea), a string (of any type in PostgreSQL's text format), or an array of these. A null is NULL, also
   * in an array.
   */
  add<T>(value: T): this {
    if (isReference<T>()) {
      if (changetype<usize>(value) == 0) return this.nil();
    }
    if (!isReference<T>() || isString<T>() || isArray<T>()) {
      return this.append(TEXT, utf8(textFor<T>(value)));
    } else {
      return this.append(BYTES, bytesOf(changetype<NonNullable<T>>(value)));
    }
  }

  /** Adds a NULL. */
  nil(): this {
    return this.append(NULL, new ArrayBuffer(0));
  }

  /** Adds a timestamptz of Unix nanoseconds, such as now(). PostgreSQL keeps microseconds. */
  time(nanoseconds: i64): this {
    return this.append(TEXT, utf8(formatTime(nanoseconds)));
  }

  private append(kind: u8, value: ArrayBuffer): this {
    this.kinds.push(kind);
    this.values.push(value);
    return this;
  }

  /** The values as the host reads them. */
  encode(): ArrayBuffer {
    let size = 0;
    for (let i = 0; i < this.values.length; i++) size += HEAD + this.values[i].byteLength;
    const list = new ArrayBuffer(size);
    let at = changetype<usize>(list);
    for (let i = 0; i < this.values.length; i++) {
      const value = this.values[i];
      store<u8>(at, this.kinds[i]);
      store<u32>(at, value.byteLength, 1);
      memory.copy(at + HEAD, changetype<usize>(value), value.byteLength);
      at += HEAD + value.byteLength;
    }
    return list;
  }
}

/** A value in PostgreSQL's text format. */
function textFor<T>(value: T): string {
  if (isString<T>()) {
    return changetype<string>(value);
  } else if (isBoolean<T>()) {
    return value ? "t" : "f";
  } else if (isInteger<T>() || isFloat<T>()) {
    return value.toString();
  } else if (isArray<T>()) {
    return arrayText<valueof<T>>(changetype<valueof<T>[]>(value));
  } else {
    return ERROR("a parameter is a number, bool, string, ArrayBuffer, Uint8Array, StaticArray<u8>, or an array of these");
  }
}

function arrayText<E>(elements: E[]): string {
  const parts: string[] = [];
  for (let i = 0; i < elements.length; i++) {
    const element = elements[i];
    if (isReference<E>()) {
      if (changetype<usize>(element) == 0) {
        parts.push("NULL");
        continue;
      }
    }
    if (!isReference<E>() || isString<E>()) {
      parts.push('"' + textFor<E>(element).replaceAll("\\", "\\\\").replaceAll('"', '\\"') + '"');
    } else {
      parts.push('"\\\\x' + hex(bytesOf(changetype<NonNullable<E>>(element))) + '"');
    }
  }
  return "{" + parts.join(",") + "}";
}

const DIGITS = "0123456789abcdef";

function hex(bytes: ArrayBuffer): string {
  const digits: string[] = [], view = Uint8Array.wrap(bytes);
  for (let i = 0; i < view.length; i++) digits.push(DIGITS.charAt(view[i] >> 4) + DIGITS.charAt(view[i] & 15));
  return digits.join("");
}

/**
 * A PostgreSQL database, which the manifest has to grant. The first statement begins a transaction. With `commit: complete`, the default, it
 * is committed together with the completion of the task, and undone if the task does not complete. With `commit: call`, commit and
 * commitStep commit it.
 *
 * After an error of PostgreSQL, Errno.ESQL, it refuses all statements of the transaction until ROLLBACK TO a savepoint, or rollback. After
 * EAGAIN, which means that the database does not serve, end the task: it runs again later without an attempt being counted. ELIMIT if the
 * answer or the time exceeds what the manifest allows.
 */
export class Database {
  private database: ArrayBuffer;

  constructor(readonly name: string) {
    this.database = utf8(name);
  }

  /** Runs a statement, and returns how many rows it affected. */
  exec(statement: string, params: Params | null = null, failure: Failure | null = null): i64 {
    return this.query(statement, params, failure).affected;
  }

  /** Runs a statement, and returns its rows: none if it failed. */
  query(statement: string, params: Params | null = null, failure: Failure | null = null): Rows {
    const d = this.database, s = utf8(statement), p = params ? params.encode() : new ArrayBuffer(0);
    const size = check("sql", sys.sql(
      changetype<usize>(d), d.byteLength, changetype<usize>(s), s.byteLength, changetype<usize>(p), p.byteLength,
    ), failure, this.name);
    return new Rows(read(size, failure) || new ArrayBuffer(EMPTY));
  }

  /** Commits the transaction. The manifest must say `commit: call`. After EAGAIN it is not known whether it was committed. */
  commit(failure: Failure | null = null): void {
    const size = check("sql_commit", this.finish("", new ArrayBuffer(0)), failure, this.name);
    read(size, failure);
  }

  /** Undoes the transaction. The next statement begins a new one. */
  rollback(failure: Failure | null = null): void {
    const d = this.database;
    check("sql_rollback", sys.sql_rollback(changetype<usize>(d), d.byteLength), failure, this.name);
  }

  /**
   * The value of a step of the task that must not be done twice, however often the task runs; null if no run has done it. The manifest must
   * say `commit: call`.
   *
   *     let bill = shop.step("bill");
   *     if (!bill) {
   *       const rows = shop.query("INSERT INTO bills (name) VALUES ($1) RETURNING id", new Params().add("Ada"));
   *       rows.next();
   *       bill = shop.commitStep("bill", rows.get<string>("id"));
   *     }
   */
  step(name: string, failure: Failure | null = null): ArrayBuffer | null {
    const d = this.database, n = utf8(name);
    const answer = sys.sql_step(changetype<usize>(d), d.byteLength, changetype<usize>(n), n.byteLength);
    return found("sql_step", answer, failure, name, this.name);
  }

  /**
   * Commits the transaction as a step, with its value, a string or bytes of at most 1 MiB. Returns the value of the step: if another run of
   * the task has committed it in the meantime, this transaction is undone, and the value is that of the other run.
   */
  commitStep<T>(name: string, value: T, failure: Failure | null = null): ArrayBuffer {
    const bytes = bytesOf(value), answer = this.finish(name, bytes);
    if (answer == Errno.ECONFLICT) {
      const other = this.step(name, failure);
      if (other) return other;
      if (failure) {
        if (failure.failed) return new ArrayBuffer(0);
      }
    }
    const size = check("sql_commit", answer, failure, name, this.name);
    return read(size, failure) ? bytes : new ArrayBuffer(0);
  }

  private finish(step: string, value: ArrayBuffer): i32 {
    const d = this.database, s = utf8(step);
    return sys.sql_commit(
      changetype<usize>(d), d.byteLength, changetype<usize>(s), s.byteLength, changetype<usize>(value), value.byteLength,
    );
  }
}

const EMPTY = 16; // the size of an answer without rows and columns

/** The answer of a size in the slot; null if the call failed, or if it is an error of the database. */
function read(size: i32, failure: Failure | null): ArrayBuffer | null {
  if (size < 0) return null;
  const answer = slot(size);
  let at = changetype<usize>(answer);
  if (load<i32>(at) >= 0) return answer;
  const error = new SQLError(), fields = load<i32>(at, 4);
  at += 8;
  for (let i = 0; i < fields; i++) {
    const field = load<u8>(at), size = load<u32>(at, 1), text = textAt(at + HEAD, size);
    at += HEAD + size;
    if (field == 0x43) error.state = text; // C
    else if (field == 0x4d) error.message = text; // M
    else if (field == 0x44) error.detail = text; // D
    else if (field == 0x48) error.hint = text; // H
    else if (field == 0x50) error.position = <i32>parseInt(text); // P
    else if (field == 0x73) error.schema = text; // s
    else if (field == 0x74) error.table = text; // t
    else if (field == 0x63) error.column = text; // c
    else if (field == 0x64) error.dataType = text; // d
    else if (field == 0x6e) error.constraint = text; // n
  }
  if (failure) {
    failure.code = Errno.ESQL;
    failure.reason = error.toString();
    failure.sql = error;
  } else {
    fail(error.toString());
  }
  return null;
}

/** A column of an answer. */
export class Column {
  /** The OID is that of its type in PostgreSQL's table pg_type. */
  constructor(readonly name: string, readonly oid: u32) {}
}

/**
 * The rows of an answer, all in memory:
 *
 *     const rows = shop.query("SELECT id, name FROM orders");
 *     while (rows.next()) info(rows.get<i64>("id").toString() + " " + rows.get<string>("name"));
 */
export class Rows {
  /** How many rows were inserted, changed, deleted, selected or fetched. */
  readonly affected: i64;
  /** The number of rows. */
  readonly length: i32;
  readonly columns: Column[] = [];
  private left: i32; // rows that follow
  private at: usize; // where they begin
  private values: StaticArray<usize> = new StaticArray<usize>(0); // where those of the row begin
  private row: bool = false; // whether there is one

  constructor(private answer: ArrayBuffer) {
    let at = changetype<usize>(answer);
    this.length = this.left = load<i32>(at);
    this.affected = load<i64>(at, 4);
    const columns = load<i32>(at, 12);
    at += EMPTY;
    for (let i = 0; i < columns; i++) {
      const size = load<u32>(at, 4);
      this.columns.push(new Column(textAt(at + 8, size), load<u32>(at)));
      at += 8 + size;
    }
    this.at = at;
    this.values = new StaticArray<usize>(columns);
  }

  /** Goes on to the next row, and returns whether there is one. */
  next(): bool {
    this.row = this.left > 0;
    if (!this.row) return false;
    this.left--;
    for (let i = 0; i < this.values.length; i++) {
      this.values[i] = this.at;
      this.at += HEAD + load<u32>(this.at, 1);
    }
    return true;
  }

  /**
   * A value of the row: an integer, f64, f32, bool, string (any type but bytea, in PostgreSQL's text format), ArrayBuffer (bytea), or an array
   * of these. NULL needs a type with null, such as `string | null` or `(string | null)[]`, or a look at isNull before. Another value fails
   * the task.
   */
  get<T>(column: string): T {
    const at = this.place(column), kind = load<u8>(at);
    if (kind == NULL) return none<T>("column " + column);
    if (kind == BYTES) {
      if (!isReference<T>() || isString<T>() || isArray<T>()) {
        fail("column " + column + ": it is a bytea: read an ArrayBuffer");
      } else {
        return changetype<T>(copy(at));
      }
    }
    return convert<T>(textAt(at + HEAD, load<u32>(at, 1)), "column " + column);
  }

  isNull(column: string): bool {
    return load<u8>(this.place(column)) == NULL;
  }

  /** A timestamptz, a timestamp in UTC or a date, in Unix nanoseconds. Infinity and times before 1678 or after 2261 fail the task. */
  time(column: string): i64 {
    const text = this.get<string>(column), time = parseTime(text);
    if (time == NO_TIME) fail("column " + column + ': "' + text + '" is no time in nanoseconds: read a string');
    return time;
  }

  private place(column: string): usize {
    if (!this.row) fail("column " + column + ": there is no row: call next, which tells whether there is one");
    const columns = this.columns;
    for (let i = 0; i < columns.length; i++) {
      if (columns[i].name == column) return this.values[i];
    }
    fail("the answer has no column " + column + ": it has " + columns.map<string>((one) => one.name).join(", "));
    return 0;
  }
}

function copy(at: usize): ArrayBuffer {
  const bytes = new ArrayBuffer(load<u32>(at, 1));
  memory.copy(changetype<usize>(bytes), at + HEAD, bytes.byteLength);
  return bytes;
}

/** What NULL becomes. */
function none<T>(place: string): T {
  if (isNullable<T>()) return changetype<T>(0);
  fail(place + ": it is NULL: read a type with null, such as string | null, or look at isNull before");
  if (isReference<T>()) {
    return changetype<T>(0);
  } else {
    return <T>0;
  }
}

/** What a text becomes. */
function convert<T>(text: string, place: string): T {
  if (isString<T>()) {
    return changetype<T>(text);
  } else if (isBoolean<T>()) {
    if (text != "t" && text != "f") fail(place + ': "' + text + '" is no bool');
    return <T>(text == "t");
  } else if (isInteger<T>()) {
    return integer<T>(text, place);
  } else if (isFloat<T>()) {
    if (!isNumber(text)) fail(place + ': "' + text + '" is no ' + nameof<T>());
    return <T>parseFloat(text);
  } else if (isArray<T>()) {
    return changetype<T>(new Elements(text, place).all<valueof<T>>());
  } else if (idof<T>() == idof<ArrayBuffer>()) {
    return changetype<T>(unhex(text, place));
  } else {
    return ERROR("a value of a row is a number, bool, string, ArrayBuffer, or an array of these");
  }
}

function isNumber(text: string): bool {
  for (let i = 0; i < text.length; i++) {
    if (!"0123456789+-.e".includes(text.charAt(i))) return text == "NaN" || text == "Infinity" || text == "-Infinity";
  }
  return text.length > 0;
}

function integer<T>(text: string, place: string): T {
  const negative = text.startsWith("-");
  if (text.length <= i32(negative)) fail(place + ': "' + text + '" is no ' + nameof<T>());
  let value: T = 0;
  for (let i = negative ? 1 : 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30, next: T = value * 10 + <T>(negative ? -digit : digit);
    const over = digit > 9 || digit < 0 || (value != 0 && next / 10 != value) || (negative ? next > value : next < value);
    if (over) fail(place + ': "' + text + '" is no ' + nameof<T>());
    value = next;
  }
  return value;
}

/** Reads a bytea in PostgreSQL's text format, as it is in arrays: \x and hexadecimal digits. */
function unhex(text: string, place: string): ArrayBuffer {
  const bytes = new Uint8Array(max(text.length / 2 - 1, 0));
  let right = text.startsWith("\\x") && text.length % 2 == 0;
  for (let i = 0; right && i < bytes.length; i++) {
    const high = DIGITS.indexOf(text.charAt(2 * i + 2)), low = DIGITS.indexOf(text.charAt(2 * i + 3));
    right = high >= 0 && low >= 0;
    bytes[i] = <u8>((high << 4) | low);
  }
  if (!right) fail(place + ": it is no bytea: read a string");
  return bytes.buffer;
}

/** Reads an array in PostgreSQL's text format: {1,NULL,"a b"}. */
class Elements {
  private at: i32 = 0;

  constructor(private text: string, private place: string) {}

  all<E>(): E[] {
    const elements: E[] = [];
    if (this.text.startsWith("[")) this.at = this.text.indexOf("=") + 1; // bounds that are not from 1
    if (!this.take(0x7b)) this.wrong();
    if (this.take(0x7d)) return elements;
    do {
      const place = this.place + ", element " + (elements.length + 1).toString();
      const quoted = this.text.charCodeAt(this.at) == 0x22, word = this.word();
      elements.push(word == "NULL" && !quoted ? none<E>(place) : convert<E>(word, place));
    } while (this.take(0x2c));
    if (!this.take(0x7d)) this.wrong();
    return elements;
  }

  private take(mark: i32): bool {
    const taken = this.at < this.text.length && this.text.charCodeAt(this.at) == mark;
    if (taken) this.at++;
    return taken;
  }

  /** An element without its quotes. One that is an array of the next dimension comes as it is. */
  private word(): string {
    const from = this.at;
    if (this.take(0x22)) return this.quoted();
    for (let depth = 0, inside = false; this.at < this.text.length; this.at++) {
      const c = this.text.charCodeAt(this.at);
      if (c == 0x5c) this.at++;
      else if (c == 0x22) inside = !inside;
      else if (inside) continue;
      else if (depth == 0 && (c == 0x2c || c == 0x7d)) break;
      else if (c == 0x7b) depth++;
      else if (c == 0x7d) depth--;
    }
    return this.text.substring(from, this.at);
  }

  private quoted(): string {
    const parts: string[] = []; // joined once: memory is never freed
    let from = this.at;
    for (; this.at < this.text.length && this.text.charCodeAt(this.at) != 0x22; this.at++) {
      if (this.text.charCodeAt(this.at) != 0x5c) continue;
      parts.push(this.text.substring(from, this.at));
      from = ++this.at;
    }
    parts.push(this.text.substring(from, this.at));
    if (!this.take(0x22)) this.wrong();
    return parts.join("");
  }

  private wrong(): void {
    fail(this.place + ': "' + this.text + '" is no array');
  }
}
