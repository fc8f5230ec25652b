// Returns a line for each call of JSON.parse and JSON.stringify, on special and on random values; of an error it has only the name.

// A value as text, without JSON.stringify.
function show(value) {
  if (typeof value === "string") return "s" + Array.from({ length: value.length }, (_, i) => value.charCodeAt(i).toString(16)).join(".");
  if (Array.isArray(value)) return "[" + value.map(show).join() + "]";
  if (typeof value === "object" && value !== null) return "{" + Reflect.ownKeys(value).map((key) => show(key) + ":" + show(value[key])).join() + "}";
  return Object.is(value, -0) ? "-0" : String(value);
}

function tell(what, call) {
  let told;
  try {
    told = show(call());
  } catch (error) {
    told = error.name;
  }
  return `${what}: ${told}`;
}

const texts = [
  "0", "-0", "-0.0", "0e1", "7", "-7", "00", "01", "-", "+1", ".5", "1.", "1e", "1e400", "-1e400", "1E-7", "5e-324", "0.1",
  "99999999", "999999999", "-999999999", "1000000000", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296",
  "123456789.5", "123456789e1", "999999999.0", "1234567890.5", "12.", "12e", "12e+", "-00", "-01", "-9e0", "9007199254740993", "123456789012345678901234567890", "1 ", " 1", "1 2", "1a", "0x1", "NaN", "Infinity", "true", "tru", "null", "undefined", "",
  '""', '"a"', '"', '"a', '"a\\', '"\\u00e9é"', '"\\ud83d\\ude00"', '"😀"', '"\\ud800"', '"\\n\\t\\b\\f\\r\\"\\\\\\/"', '"\\x"', '"\\u12"', '"a\nb"', '"a\tb"',
  '"\x7f"', '"\u0000"', '"\u2028"', '"ä€"', "'a'", "[]", "[1,2,3]", "[1,]", "[,1]", "[1", "{}", '{"a":1}', '{"a":1,}', "{a:1}", '{"a"}', '{"a":1', "{,}",
  '{"a":1,"a":2}', '{"a":1,"b":2,"a":{}}', '{"__proto__":1}', '{"__proto__":{"x":1},"__proto__":[2]}', '{"constructor":1,"toString":2}',
  '{"2":1,"1":2,"b":3,"a":4,"-1":5,"01":6,"4294967295":7,"4294967294":8}', '{"":1}', '{"ä":1,"\\u00e4":2}', '{"a":{"b":[{"c":[]}]}}', '[[[[[]]]]]',
];

const gone = {};
Object.defineProperty(gone, "hidden", { value: 1, enumerable: false });
gone[Symbol("s")] = 1;
gone.shown = 2;

const circle = { list: [] };
circle.list.push(circle);

class Point {
  x = 1;
  #y = 2;
  get z() { return 3; }
}
class Dated extends Point {
  toJSON(key) { return `${this.x} at ${key}, ${typeof key}`; }
}

const values = {
  numbers: () => [0, -0, 1.5, 1e21, 1e-7, NaN, Infinity, -Infinity, 2 ** 31, -(2 ** 31), 2 ** 53],
  strings: () => ["", "a", '"', "\\", "\b\f\n\r\t\v\0\x1f\x7f\x80\xff", "ä", "€", "😀", "\ud800", "\udc00a", "a\ud83d", "\ud83d\ude00\ud83d", "\u2028\u2029", "/</script>"],
  ropes: () => ["a".repeat(3000) + "é" + "b".repeat(3000), "\n".repeat(600) + "€"].map((rope) => rope + rope),
  keys: () => ({ b: 1, 2: 2, a: 3, 1: 4, "\n": 5, "€": 6, "\ud800": 7, "": 8 }),
  undefinedAndFunctions: () => ({ a: undefined, b: () => 1, c: Symbol("c"), d: [undefined, () => 1, Symbol("c")] }),
  boxed: () => [new Number(3), new String("x"), new Boolean(false), Object(Symbol("s"))],
  bigint: () => ({ a: 1n }),
  bigintInArray: () => [1n],
  hidden: () => gone,
  circle: () => circle,
  classes: () => ({ p: new Point(), d: new Dated(), list: [new Dated(), [new Dated()]] }),
  dates: () => [new Date(0), new Date(NaN)],
  others: () => [/x/g, new Map([[1, 2]]), new Set([1]), new Uint8Array([1, 2]), new ArrayBuffer(2), new Error("e"), Object.create(null), Object.create({ inherited: 1 })],
  proxies: () => [new Proxy({ a: 1, b: 2 }, { ownKeys: () => ["b", "a"] }), new Proxy([1, 2], {})],
  traps: () => {
    const trapped = [];
    const logger = new Proxy({}, { get: (_, trap) => (target, key) => { trapped.push(`${trap} ${String(key)}`); return Reflect[trap](target, key); } });
    return [JSON.stringify(new Proxy({ a: 1, b: 2 }, logger)), trapped];
  },
  indices: () => ({ 4294967294: 1, 4294967295: 2, 0: 3, "-0": 4, "01": 5 }),
  shrinking: () => { const list = [1, { toJSON() { list.length = 2; return 2; } }, 3, 4]; return list; },
  setter: () => ({ set a(_) {}, b: 1 }),
  afterParse: () => {
    const parsed = JSON.parse('{"a":1,"b":{"c":2}}');
    parsed.d = Object.getOwnPropertyDescriptors(parsed);
    delete parsed.a;
    return [parsed, JSON.parse('{"b":1,"a":2,"d":3}'), Object.isExtensible(parsed.b)];
  },
  setterOfAll: () => {
    Object.defineProperty(Object.prototype, "a", { set() { throw new Error("called"); }, configurable: true });
    Object.defineProperty(Object.prototype, "b", { value: 0, writable: false, configurable: true });
    const parsed = JSON.parse('{"a":1,"b":2}');
    delete Object.prototype.a;
    delete Object.prototype.b;
    return parsed;
  },
  many: () => JSON.parse("{" + Array.from({ length: 2000 }, (_, i) => `"${i % 3 === 0 ? 1500 - i : "n" + (i % 900)}":${i}`).join() + "}"),
  deep: () => JSON.parse('{"a":['.repeat(100) + "]}".repeat(100)),
  bigintWithJSON: () => {
    BigInt.prototype.toJSON = function (key) { return `${typeof key} ${key}`; };
    const text = JSON.stringify([[1n], { a: 1n }]);
    delete BigInt.prototype.toJSON;
    return text;
  },
  getters: () => ({ get a() { delete this.b; this.d = 4; return 1; }, b: 2, c: 3 }),
  throwing: () => ({ a: 1, get b() { throw new RangeError("b"); } }),
  sparse: () => [1, , 3],
  arguments: () => (function () { return arguments; })(1, 2),
};

// A generator of random values: xorshift, the same everywhere.
let state = 1;
function random(below) {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
}

const pieces = ["a", "key", "é", "€", "😀", "\ud800", "\n", '"', "\\", "\x01", " ", "0", "1", "__proto__", "toString", "x".repeat(50)];
const randomText = () => Array.from({ length: random(4) }, () => pieces[random(pieces.length)]).join("");

function randomValue(depth) {
  switch (random(depth > 0 ? 8 : 6)) {
    case 0: return null;
    case 1: return random(2) === 1;
    case 2: return random(3) === 0 ? -random(2 ** 31) : random(1000);
    case 3: return (random(2 ** 31) - 2 ** 30) / 2 ** random(60);
    case 4: case 5: return randomText();
    case 6: return Array.from({ length: random(5) }, () => randomValue(depth - 1));
    default: return Object.fromEntries(Array.from({ length: random(6) }, () => [randomText(), randomValue(depth - 1)]));
  }
}

export default function () {
  const lines = [];
  for (const text of texts) {
    lines.push(tell("parse " + show(text), () => JSON.parse(text)));
    lines.push(tell("revive " + show(text), () => JSON.parse(text, (key, value) => (key === "a" ? undefined : value))));
  }
  for (const [name, make] of Object.entries(values)) {
    lines.push(tell(name, () => JSON.stringify(make())));
    lines.push(tell(name + " with indent", () => JSON.stringify(make(), null, 3)));
    lines.push(tell(name + " with names", () => JSON.stringify(make(), ["a", "b", "p", "x"], "--")));
    const keys = [];
    const replacer = (key, value) => (keys.push(`${typeof key} ${key}`), typeof value === "bigint" ? String(value) : value);
    lines.push(tell(name + " with replacer", () => JSON.stringify(make(), replacer)), "its keys: " + show(keys));
  }
  Object.prototype.toJSON = Array.prototype.toJSON = function () { return "inherited"; };
  lines.push(tell("inherited toJSON", () => JSON.stringify({ a: [1] })));
  delete Object.prototype.toJSON;
  delete Array.prototype.toJSON;
  for (let i = 0; i < 1500; i++) {
    const value = randomValue(4), text = JSON.stringify(value);
    lines.push(tell(i, () => text));
    lines.push(tell(i, () => JSON.parse(text)));
    const damaged = text.slice(0, random(text.length + 1)) + '{"[],:1e-\\u'[random(11)] + text.slice(random(text.length + 1));
    lines.push(tell(show(damaged), () => JSON.parse(damaged)));
  }
  return lines.join("\n");
}
