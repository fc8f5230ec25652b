// A handler whose start throws.
import { config } from "@quern/assemblyscript";

if (config("none") == null) throw new Error("no paper");

export function quern_handle(): i32 {
  return 0;
}
