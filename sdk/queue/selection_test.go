package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// decoded is what a pointer names in a text that is decoded as a whole.
func decoded(text []byte, pointer string) (value any, found bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if !utf8.Valid(text) || !json.Valid(text) || decoder.Decode(&value) != nil {
		return nil, false
	}
	for _, name := range segments(pointer) {
		switch in := value.(type) {
		case map[string]any:
			if value, found = in[name]; !found {
				return nil, false
			}
		case []any:
			i, err := strconv.ParseUint(name, 10, 31)
			if err != nil || int(i) >= len(in) || name != strconv.FormatUint(i, 10) {
				return nil, false
			}
			value = in[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// A selection finds what a decoder finds, for several pointers at once, and what it finds equals itself.
func FuzzSelection(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, {"b": "x\n\"y"}, []], "a/b": {"": null}, "\u0061": 2}`, `[[], {"0": [true]}, -1.5e3]`, `{"a":{"b":1},"a":2}`, `{"a":2,"a":{"b":{"c":0}}}`,
		` "text" `, `12`, `{}`, `[`, "[\"\xff\"]", `{"a":"\\","b":"]"}`,
	} {
		f.Add([]byte(text), "/a/1/b", "/a/b")
	}
	f.Fuzz(func(t *testing.T, text []byte, first, second string) {
		var s selection
		for _, pointer := range []string{first, second} {
			if pointer != "" && pointer[0] != '/' {
				t.Skip()
			}
			s.add(pointer)
		}
		valid := s.read(text)
		for _, pointer := range []string{first, second} {
			want, found := decoded(text, pointer)
			is := s.at(pointer)
			if !valid || is == nil {
				if found {
					t.Errorf("%q in %q is not found", pointer, text)
				}
				continue
			}
			got, _ := decoded(is, "")
			if !found || !reflect.DeepEqual(got, want) {
				t.Errorf("%q in %q: %q, want %v", pointer, text, is, want)
			}
			if len(is) < longestEqual && !equalJSON(is, want) && !strings.ContainsAny(string(is), "eE") { // exponents may have too many digits
				t.Errorf("%q does not equal %v", is, want)
			}
		}
	})
}

func TestEqualNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want any
		is   bool
	}{
		{"12345678901234567891.0", json.Number("12345678901234567891"), true},
		{"1e2", json.Number("100"), true},
		{"0.10", json.Number("1e-1"), true},
		{"-0", json.Number("0"), true},
		{"-0.0e5", 0, true},
		{"1e400", json.Number("10e399"), true},
		{"9007199254740993", json.Number("9007199254740992"), false},
		{"1", json.Number("-1"), false},
		{"10", json.Number("1"), false},
		{"0.1000000000000000000000001", json.Number("0.1"), false},
		{"1e9999999999999", json.Number("1e9999999999999"), true},
		{"1e9999999999999", json.Number("1e9999999999998"), false},
		{"1" + strings.Repeat("0", maxSubscription), json.Number("1e" + strconv.Itoa(maxSubscription)), false}, // too long
		{"true", 1, false},
	} {
		if got := equalJSON([]byte(c.text), c.want); got != c.is {
			t.Errorf("%.50s equals %v: %v", c.text, c.want, got)
		}
	}
}

// The filter of a hostile subscriber makes a publisher take no more memory than some times the payload, whatever is in it.
func TestFiltersTakeLittleMemory(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	const size = 8 << 20
	for name, payload := range map[string]string{
		"objects": "[" + strings.Repeat("{},", size/3) + "{}]",
		"keys":    "{" + strings.Repeat(`"a":{"b":0},`, size/12) + `"c":0}`,
		"numbers": "[" + strings.Repeat("0,", size/2) + "0]",
		"deep":    strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"text":    `"` + strings.Repeat(`\u0041`, size/6) + `"`,
		"spaces":  "[" + strings.Repeat(" ", size) + "0]",
	} {
		s := Subscription{Topic: "t", Filter: Filter{Data: map[string]any{
			"": []any{map[string]any{}}, "/a/b": 1.0, "/4": "x", "/c": json.Number("0"), "/0/0/0": strings.Repeat("A", 100),
		}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if s.Matches("t", nil, []byte(payload)) {
			t.Errorf("%s match", name)
		}
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 4*size {
			t.Errorf("%s: %d bytes were allocated for a payload of %d", name, taken, len(payload))
		}
	}
}

// Ten thousand subscribers look at one payload in one walk.
func BenchmarkFilters(b *testing.B) {
	payload := []byte(`{"customer": {"country": "CH", "id": 17}, "lines": [` + strings.Repeat(`{"sku": "a-1", "n": 2},`, 50) + `{}]}`)
	subscriptions := make([]*Subscription, 10_000)
	for i := range subscriptions {
		subscriptions[i] = &Subscription{Topic: "orders", Filter: Filter{Data: map[string]any{"/customer/id": json.Number(fmt.Sprint(i)), "/customer/country": "CH"}}}
	}
	for b.Loop() {
		e, n := newEvent("orders", nil, payload, subscriptions...), 0
		for _, s := range subscriptions {
			if s.matches(e) {
				n++
			}
		}
		if n != 1 {
			b.Fatal(n)
		}
	}
}
