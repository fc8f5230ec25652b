// Does what $BEHAVIOUR says, as far as the library can: see languages_test.go.

function variable(name: string): string {
  return process.env.has(name) ? process.env.get(name) : "";
}

function hex(value: u32, digits: i32): string {
  return value.toString(16).padStart(digits, "0");
}

// digest reads stdin to its end, with reads of so many bytes.
function digest(step: i32): void {
  const buffer = new ArrayBuffer(step);
  const bytes = Uint8Array.wrap(buffer);
  let hash: u32 = 2166136261;
  let total = 0;
  for (let n = process.stdin.read(buffer); n > 0; n = process.stdin.read(buffer)) {
    for (let i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 16777619;
    total += n;
  }
  process.stdout.write(total.toString() + " " + hex(hash, 8) + " " + process.stdin.read(buffer).toString());
}

function streams(): void {
  for (let i = 0; i < 500; i++) {
    process.stdout.write("out " + i.toString() + "\n");
    process.stderr.write("err " + i.toString() + "\n");
  }
}

function flood(): void {
  const all = new Uint8Array(1 << 20);
  for (let i = 0; i < all.length; i++) all[i] = <u8>((i * 7) >> 3);
  process.stdout.write(all.buffer);
  for (let i = 0; i < 600; i++) process.stderr.write(i.toString().padStart(99, "0") + "\n");
}

function clocks(): void {
  const first = process.hrtime();
  let last = first;
  for (let i = 0; i < 1000; i++) {
    const next = process.hrtime();
    if (next < last) process.exit(1);
    last = next;
  }
  process.stdout.write((Date.now() * 1000000).toString() + (last > first ? " rising" : " standing"));
}

function random(): void {
  for (let i = 0; i < 3; i++) {
    const bytes = new Uint8Array(16);
    crypto.getRandomValues(bytes);
    for (let j = 0; j < 16; j++) process.stdout.write(hex(bytes[j], 2));
    process.stdout.write(" ");
  }
}

function memory(): void {
  const all = new Uint8Array(32 << 20);
  let sum: u32 = 0;
  for (let i = 0; i < all.length; i += 4096) {
    all[i] = <u8>(i >> 12);
    sum += all[i];
  }
  process.stdout.write(sum.toString());
}

const behaviour = variable("BEHAVIOUR");
if (behaviour == "args") {
  process.stdout.write(process.argv.length.toString() + " " + process.argv[0]);
} else if (behaviour == "env") {
  const state = process.env.has("NONE") ? "set" : "unset";
  process.stdout.write(variable("GREETING") + "|" + variable("TASK_ID") + "|" + variable("EMPTY") + "|" + state);
} else if (behaviour == "stdin") {
  digest(256 << 10);
} else if (behaviour == "stdin in small reads") {
  digest(7);
} else if (behaviour == "streams") {
  streams();
} else if (behaviour == "flood") {
  flood();
} else if (behaviour == "exit") {
  process.stdout.write("left");
  process.exit(<i32>parseInt(variable("CODE")));
} else if (behaviour == "panic") {
  throw new Error("went wrong");
} else if (behaviour == "trap") {
  unreachable();
} else if (behaviour == "clocks") {
  clocks();
} else if (behaviour == "random") {
  random();
} else if (behaviour == "memory") {
  memory();
} else {
  process.exit(1);
}
