import _ from "lodash";
import { z } from "zod";

export const packages: unknown[] = [_.chunk([1]), z.string()];
export default function run(task: { text(): string }) {
  if (task.text() === "number") return packages.length;
  const error = new Error("no ink");
  let stack = "";
  for (let n = Number(task.text()); n > 0; n--) stack = error.stack!;
  if (stack === "") throw error;
  return stack;
}
