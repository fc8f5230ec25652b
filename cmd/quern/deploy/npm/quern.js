#!/usr/bin/env node
// Starts the program, which is in a package of its own for each platform.
"use strict";
const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`@quern/${platform}/quern`);
} catch {
  const supported = Object.keys(require("./package.json").optionalDependencies).map((name) => name.slice("@quern/".length));
  console.error(
    supported.includes(platform)
      ? `quern: the package @quern/${platform} is missing: install again with optional dependencies (npm install quern --include=optional), ` +
          "and remove a package-lock.json that was written on another platform"
      : `quern: there is no program for ${platform}, only for ${supported.join(", ")}: build it by ` +
          "go install github.com/quern-project/quern/cmd/quern@latest",
  );
  process.exit(3);
}
for (const signal of ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"]) {
  // A terminal sends its signals to the program, too. It takes two of them within 200 ms for one, and most commands have ended by then.
  const delay = ["SIGINT", "SIGQUIT"].includes(signal) && process.stdin.isTTY ? 100 : 0;
  process.on(signal, () => setTimeout(() => child.kill(signal), delay));
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// npm runs this below a shell, which does not pass on the signal that ends it.
const parent = process.ppid;
if (process.env.npm_command === "exec") setInterval(() => process.ppid === parent || child.kill("SIGTERM"), 1000).unref();
child.on("error", (error) => {
  console.error(`quern: ${error.message}`);
  process.exit(3);
});
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
