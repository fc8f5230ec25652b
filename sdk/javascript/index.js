// What Node finds as "@quern/sdk", such as in a test. The functions are those of the engine, and ask the host of testing.js.

import { shared } from "./lib/shared.js";

export const { Failure, Retry, Fatal, QuernError, SQLError, log, progress, checkpoint, kv, database, http, enqueue, publish, secrets, config } = shared.sdk;
