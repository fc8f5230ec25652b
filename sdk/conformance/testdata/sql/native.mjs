// Runs tasks of handler.js as @quern/sdk/testing does: one for each line of stdin, [plugin, input], on the database of the argument.

import { createInterface } from "node:readline";

import { testHost } from "@quern/sdk/testing";
import handler from "./handler.js";

const host = testHost({ databases: { shop: process.argv[2] } });
for await (const line of createInterface({ input: process.stdin })) {
  const [, input] = JSON.parse(line);
  for (const attempt of [1, 2]) {
    const result = await host.run(handler, input, { id: input[0], attempt });
    if (result.status !== "complete" && attempt === 1) continue;
    console.log(JSON.stringify({ complete: result.status === "complete", result: new TextDecoder().decode(result.output), error: result.error, attempts: attempt }));
    break;
  }
}
await host.close();
