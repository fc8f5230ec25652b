package python_test

import (
	"strconv"
	"testing"
)

// TestJSON: the engine parses and writes JSON as the module json does, with its errors: the odd cases, random documents, and
// such documents with damaged bytes.
func TestJSON(t *testing.T) {
	p := handler(t, `
import json, random, _quern
from quern import _host

COMMON = [
    '{"a": [1, -2, 0.5, 1e3, -1.5E-2], "b": {"a": "x", "é": "\\u00e9\\ud83d\\ude00"}, "c": true, "d": false, "e": null}',
    ' [ ] ', '{}', '"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\u0000"', '-0', '-0.0', '999999999999999999', '1e999', '{"a": 1, "a": 2}',
    '{"a": {"k": 1}, "a": 2, "k": 3}', '[' * 200 + ']' * 200, '"日本語 \x7f"', '[1.7976931348623157e308, 5e-324, 0.1]',
]
RARE = [
    '', ' ', 'nul', 'nulll', 'null null', 'truee', '01', '-', '+1', '.5', '1.', '1.e5', '1e', '1e+', '0x1', '1_000', 'NaN',
    '-Infinity', '1000000000000000000', '-' + '9' * 30, '1' * 5000, '"', '"a', '"\\', '"\\u12', '"\\u12g4"', '"\\x"', '"\\ud800"',
    '"\\ud800\\u0041"', '"\\udc00\\ud800"', '"\\ud800\\ud800\\udc00"', '"a\nb"', '"\x00"', '\x00', '1\x00', '[1,]', '[,]', '[1 2]',
    '[1', '{"a"}', '{"a":}', '{"a":1,}', '{,}', '{a:1}', '{1:2}', '{"a":1', '\ufeff1', '[' * 201 + ']' * 201, '[' * 100000, '\u20281',
]
BYTES = [b'"\xff"', b'"\xc3"', b'{"\xed\xa0\x80": 1}', b'"\xf4\x90\x80\x80"', '[1, "é"]'.encode('utf-16'), '"a"'.encode('utf-32-le')]
class Number(int): pass
class Text(str): pass
circle = []
circle.append(circle)
VALUES = [
    [], {}, (), [()], ({},), "", "\"\\/\b\f\n\r\t\0\x1f\x7f", "é\U0001F600", 0, -1, 2**63 - 1, -2**63, 2**63, -10**30, 10**5000, 0.1, -0.0, 1e22,
    5e-324, float("nan"), float("inf"), True, False, None, [True, None], {1: 2, True: 3, None: 4, 1.5: 5}, {(): 1}, {"a": object},
    Number(5), Text("a"), {Text("a"): Number(1)}, "\ud800", {"\udfff": "\ud800"}, circle, [[[]]], {"a" * 300: "\n" * 300}, b"a",
]
deep = []
for _ in range(199): deep = [deep]
VALUES += [deep, [deep], [[deep]]]

def outcome(work, *arguments):
    try: return repr(work(*arguments))
    except Exception as error: return f"{type(error).__name__}: {error}"

def same(what, ours, theirs):
    if ours != theirs: raise AssertionError(f"{what!r:.200}: {ours:.200}, and json: {theirs:.200}")

def kind(said): return said.split(":")[0] if "Error: " in said else said # to_json names the part that is wrong

def write(value): return _host._encode(value).encode(errors="replace")

def check(data): same(data, outcome(_host.from_json, data), outcome(json.loads, data))

def text(): return "".join(random.choice("ab\"\\\n\0é\u2028\U0001F600 ") for _ in range(random.randrange(6)))

def value(depth):
    kind = random.randrange(8 if depth else 6)
    if kind == 0: return text()
    if kind == 1: return random.randrange(-10**random.randrange(1, 20), 10**19)
    if kind == 2: return random.choice([True, False, None])
    if kind == 3: return random.uniform(-1, 1) * 10.0**random.randrange(-320, 308)
    if kind < 6: return random.randrange(10)
    if kind == 6: return [value(depth - 1) for _ in range(random.randrange(4))]
    return {text(): value(depth - 1) for _ in range(random.randrange(4))}

def handle(task):
    for doc in COMMON:
        assert _quern.read_json(doc.encode()) is not NotImplemented, doc
        check(doc.encode())
    for doc in RARE: check(doc.encode())
    for doc in BYTES: check(doc)
    for v in VALUES: same(v, kind(outcome(_host.to_json, v)), kind(outcome(write, v)))
    assert _quern.write_json({"a": [1, 1.5, "é", None, True, ()]}) is not NotImplemented
    random.seed(int(task.text))
    for _ in range(1000):
        v = value(4)
        same(v, kind(outcome(_host.to_json, v)), kind(outcome(write, v)))
        data = bytearray(json.dumps(v, ensure_ascii=random.random() < 0.5, indent=random.choice([None, None, 1])).encode())
        check(bytes(data))
        for _ in range(3):
            at = random.randrange(len(data))
            data[at:at + random.randrange(3)] = random.choice([b"", bytes([random.randrange(256)]), b"\\u", b'"', b"1", b","])
            check(bytes(data))
            if not data: break
`)
	for seed := range 2 {
		p.result(t, strconv.Itoa(seed))
	}
}
