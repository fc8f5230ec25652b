// A plugin built with Extism's PDK for AssemblyScript.
import { Config, Host, LogLevel, Memory, Var } from "@extism/as-pdk";
import { error_set } from "@extism/as-pdk/lib/env"; // the PDK has no other way

export function echo(): i32 {
  Host.output(Host.input());
  return 0;
}

// words counts words, and keeps their sum in a variable of the task.
export function words(): i32 {
  const separator = Config.get("separator");
  const words = Host.inputString().split(separator === null ? " " : separator).length;
  if (words < 2) {
    error_set(Memory.allocateString("too few words").offset);
    return 3;
  }
  const before = Var.getString("sum");
  const sum = (before === null ? 0 : <i32>parseInt(before)) + words;
  Var.set("sum", Uint8Array.wrap(String.UTF8.encode(sum.toString())));
  Host.log(LogLevel.Info, "counted");
  Host.outputString(`{"words": ${words}, "sum": ${sum}}`);
  return 0;
}

export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
