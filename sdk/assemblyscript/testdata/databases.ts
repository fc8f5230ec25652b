// Values of a database: the first line of the input says how to read the column v, the second line is the statement.
import { Database, Errno, Failure, Params, progress, run, Task, textOf } from "@quern/assemblyscript";

export function quern_handle(): i32 {
  return run(read);
}

const shop = new Database("shop");

function read(task: Task): string {
  const lines = task.text.split("\n"), type = lines[0];
  if (type == "params") return given();
  if (type == "failure") return failed(lines[1]);
  if (type == "step") return step(lines[1]);
  const rows = shop.query(lines[1]);
  if (type == "early") return rows.get<string>("v");
  rows.next();
  if (type == "i8") return rows.get<i8>("v").toString();
  if (type == "u32") return rows.get<u32>("v").toString();
  if (type == "i64") return rows.get<i64>("v").toString();
  if (type == "u64") return rows.get<u64>("v").toString();
  if (type == "f32") return rows.get<f32>("v").toString();
  if (type == "f64") return rows.get<f64>("v").toString();
  if (type == "bool") return rows.get<bool>("v").toString();
  if (type == "string") return rows.get<string>("v");
  if (type == "text") return text(rows.get<string | null>("v"));
  if (type == "isNull") return rows.isNull("v").toString();
  if (type == "bytes") return Uint8Array.wrap(rows.get<ArrayBuffer>("v")).join(" ");
  if (type == "time") return rows.time("v").toString();
  if (type == "i32[]") return rows.get<i32[]>("v").join(";");
  if (type == "i32[][]") return rows.get<i32[][]>("v").map<string>((row) => row.join(";")).join("|");
  if (type == "string[]") return rows.get<string[]>("v").join(";");
  if (type == "texts") return rows.get<(string | null)[]>("v").map<string>((one) => text(one)).join(";");
  if (type == "bytes[]") return rows.get<ArrayBuffer[]>("v").map<string>((one) => Uint8Array.wrap(one).join(" ")).join(";");
  if (type == "columns") return rows.columns.map<string>((one) => one.name + " " + one.oid.toString()).join(", ");
  return "no such type";
}

function text(value: string | null): string {
  return value ? "<" + value + ">" : "null";
}

// What each kind of parameter is for PostgreSQL.
function given(): string {
  const bytes = new Uint8Array(2), none: ArrayBuffer | null = null;
  bytes[1] = 255;
  const params = new Params().add<i8>(-128).add<u64>(u64.MAX_VALUE).add<f32>(0.5).add(NaN).add(-Infinity).add(1e300).add(true).add("ü\n")
    .add(bytes).add(bytes.buffer).add(none).nil().add([true, false]).add(["a\"\\", "NULL", ""]).add([bytes.buffer, none])
    .time(0).time(-1).time(1795871159123456789);
  const rows = shop.query(
    "SELECT concat_ws(';', $1::int2, $2::numeric, $3::float4, $4::float8, $5::float8, $6::float8, $7::bool, $8::text, $9::bytea, $10::bytea, " +
    "coalesce($11::bytea, 'none'), coalesce($12::text, 'nil'), $13::bool[], $14::text[], $15::bytea[], $16::timestamptz, $17::timestamptz, " +
    "$18::timestamptz) AS v", params,
  );
  rows.next();
  return rows.get<string>("v");
}

// Does a step, and reports progress before it is committed.
function step(statement: string): string {
  let value = shop.step("bill");
  if (!value) {
    shop.exec(statement);
    progress(0.5, "");
    value = shop.commitStep("bill", "first");
  }
  return textOf(value);
}

// All that a failure tells.
function failed(statement: string): string {
  const failure = new Failure();
  const affected = shop.exec(statement, null, failure);
  const error = failure.sql;
  let said = [failure.name, (failure.code == Errno.ESQL).toString(), affected.toString(), failure.reason].join(" ");
  if (error) said += ["", error.state, error.hint, error.position.toString(), error.schema, error.table, error.column, error.constraint].join("|");
  shop.rollback(failure);
  return said + " " + failure.name + (failure.sql ? " still" : "");
}
