// A receiver of webhooks: it verifies the signature of each, and prints what it got.
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";

import { SignatureError, verify } from "@quern/client";

const seen = new Set(); // a real receiver keeps this where it keeps its data

const server = createServer(async (request, response) => {
  const body = await buffer(request);
  try {
    const id = verify(request.headers, body, process.env.WEBHOOK_SECRET);
    if (!seen.has(id)) console.log(body.toString()); // the same delivery may come twice
    seen.add(id);
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    console.log(`refused: ${error.message}`);
    response.writeHead(401);
  }
  response.end();
});
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
