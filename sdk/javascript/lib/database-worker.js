// Asks a PostgreSQL database for lib/database.js, which waits.

import { createRequire } from "node:module";
import { join } from "node:path";
import { workerData } from "node:worker_threads";

const { url, port, signal } = workerData;
const letters = {
  C: "code", M: "message", D: "detail", H: "hint", P: "position", s: "schema", t: "table", c: "column", d: "dataType", n: "constraint",
};
let client;

async function connect() {
  let pg;
  try {
    pg = createRequire(join(process.cwd(), "package.json"))("pg");
  } catch {
    throw new Error("tests with a database need the package pg: npm install --save-dev pg");
  }
  client = new pg.Client({ connectionString: url, client_encoding: "UTF8" });
  client.on("error", () => {}); // the next query tells it
  await client.connect();
}

async function answer({ text, values }) {
  try {
    if (client === undefined) await connect();
    const { rowCount, fields, rows } = await client.query({
      text, values: values.map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value)), rowMode: "array", queryMode: "extended",
      types: { getTypeParser: () => (text) => text },
    });
    return { affected: rowCount ?? 0, names: fields.map(({ name }) => name), oids: fields.map(({ dataTypeID }) => dataTypeID), rows };
  } catch (error) {
    if (typeof error.severity !== "string") return { broken: error.message };
    const entries = Object.entries(letters).map(([letter, name]) => [letter, error[name]]);
    return { fields: Object.fromEntries(entries.filter(([, value]) => value !== undefined)) };
  }
}

let before = Promise.resolve();
port.on("message", (question) => {
  before = before.then(async () => {
    port.postMessage(await answer(question));
    Atomics.store(signal, 0, 1);
    Atomics.notify(signal, 0);
  });
});
