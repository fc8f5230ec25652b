// What all copies of this package in a process of Node share, such as those of two plugins of which one imports the other: the functions
// and errors of the first one, so that a test can run the handlers of both.

import { Failure, QuernError, SQLError, statusOf } from "./errors.js";
import { answerTo, native, runs } from "./native.js";
import { sdk } from "./sdk.js";
import { task } from "./task.js";

export const shared = (globalThis[Symbol.for("@quern/sdk")] ??= { Failure, QuernError, SQLError, statusOf, answerTo, native, runs, sdk, task });
