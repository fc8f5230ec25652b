import { database, Failure, SQLError } from "@quern/sdk";

const shop = database("shop");

function told(value) {
  if (Array.isArray(value)) return value.map(told);
  if (value instanceof Date) return `Date ${value.toISOString()}`;
  if (value instanceof Uint8Array) return `bytes ${Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  if (typeof value === "bigint") return `bigint ${value}`;
  if (typeof value === "number" && !Number.isFinite(value)) return `number ${value}`;
  return value;
}

const work = {
  // Reads a value of each type, and gives it back as a parameter.
  values(given) {
    return given.map(([type, text]) => {
      const { value } = shop.queryRow(`SELECT $1::text::${type} AS value`, [text]);
      let parameter = value;
      if (type === "jsonb[]") parameter = value.map((item) => JSON.stringify(item));
      else if (type.startsWith("json")) parameter = JSON.stringify(value);
      const { same } = shop.queryRow(`SELECT ($1::${type})::text IS NOT DISTINCT FROM ($2::text::${type})::text AS same`, [parameter, text]);
      return [told(value), same];
    });
  },

  arguments() {
    const row = shop.queryRow(
      `SELECT $1::int8::text a, $2::numeric::text b, $3::float8::text c, $4::bool::text d, $5::timestamptz::text e, $6::jsonb::text f,
      $7::text[]::text g, $8::bytea::text h, $9::text i, $10::int[]::text j, $11::bytea[]::text k, $12::jsonb::text l`,
      [
        2n ** 63n - 1n, "1e40", NaN, true, new Date("2026-01-02T03:04:05.006+02:00"), { a: [1, null, "ü"] },
        ['a"b', "c\\d", null, "NULL", "", "{,}"], new Uint8Array([0, 255]), null, [[1, 2], [3, 4]], [new Uint8Array([0, 255])], JSON.stringify([]),
      ],
    );
    return Object.values(row);
  },

  rows() {
    const found = shop.query("SELECT n, 'x' || n AS name FROM generate_series(1, 3) n");
    const none = shop.queryRow("SELECT 1 AS one WHERE false") ?? null;
    const written = shop.execute("INSERT INTO t SELECT n FROM generate_series(100, 103) n");
    return [found, found.affected, found.columns.map(({ name, oid }) => [name, oid]), none, written];
  },

  refused() {
    shop.execute("INSERT INTO t VALUES (1)");
    const found = [];
    for (const statement of ["INSERT INTO t VALUES (1)", "SELECT 1"]) {
      try {
        shop.execute(statement);
      } catch (e) {
        if (!(e instanceof SQLError)) throw e;
        const message = e.message.slice(0, e.message.indexOf(e.detail === "" ? " (" : ": "));
        found.push([e.sqlstate, message, e.detail, e.schema, e.table, e.constraint, e.position, e.message]);
      }
    }
    shop.rollback();
    try {
      shop.execute("SELECT nothing");
    } catch (e) {
      found.push([e.sqlstate, e.position, e.message]);
    }
    shop.rollback();
    shop.execute("INSERT INTO t VALUES (2)");
    return found;
  },

  uncaught() {
    shop.execute("INSERT INTO t VALUES (10)");
    shop.execute("INSERT INTO t VALUES (10)");
  },

  fail() {
    shop.execute("INSERT INTO t VALUES (20)");
    throw new Failure("out of ink");
  },

  swallowed() {
    try {
      work.uncaught();
    } catch {}
  },

  deferred() {
    shop.execute("INSERT INTO t VALUES (20)");
    shop.execute("INSERT INTO later VALUES (999)");
  },

  denied() { database("other").query("SELECT 1"); },
  word() { shop.query("CREATE TABLE u ()"); },
  commit() { shop.commit(); },
  twice() { shop.query("SELECT 1 AS a, 2 AS a"); },

  ids(between) { return shop.query("SELECT id FROM t WHERE id BETWEEN $1 AND $2 ORDER BY id", between).map(({ id }) => id); },

  // The first attempt fails after its step, and the second one finds it done.
  async steps(_, task) {
    const value = await shop.once("charge", async () => {
      shop.execute("INSERT INTO t VALUES (30)");
      return { attempt: task.attempt, amount: "1.10" };
    });
    try {
      await shop.once("fails", () => {
        shop.execute("INSERT INTO t VALUES (31)");
        throw new RangeError("no");
      });
    } catch (e) {
      if (!(e instanceof RangeError)) throw e;
    }
    const nothing = (await shop.once("nothing", () => {})) ?? null;
    shop.execute("INSERT INTO t VALUES ($1)", [31 + task.attempt]);
    shop.commit();
    if (task.attempt === 1) throw new Failure("again");
    return [value, nothing];
  },
};

export default function (task) {
  const [name, argument] = task.json();
  return work[name](argument, task);
}
