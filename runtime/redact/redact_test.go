package redact_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/redact"
)

// given are secrets of the tests.
func given(values map[string]string) *redact.Secrets {
	s := &redact.Secrets{}
	for name, value := range values {
		s.Add(name, []byte(value))
		s.Add(name, []byte(value))
	}
	return s
}

func TestText(t *testing.T) {
	t.Parallel()
	const plain = "no secret is in hunter2-and-more"
	var none *redact.Secrets
	for _, s := range []*redact.Secrets{none, {}} {
		if got := s.Text([]byte(plain)); got != plain || s.Any() || s.In([]byte(plain)) {
			t.Errorf("without a secret: %q", got)
		}
	}
	s := given(map[string]string{
		"password": "hunter2-and-more", "longer": "hunter2-and-more-of-it", "short": "no", "quoted": `say "please" \o/`,
		"pem": "-----BEGIN-----\r\nMIIEvQIBADANBg\n1234\n\n", "odd": "<b>\"\x01&amp/", "bytes": "\xff\xfea\x80bcdefgh\xc3", "bell": "ring\athe\bbell\rnow",
		"rust": "a\U0001f512b\u00e9c\x00d'", "url": "https://hooks.example.com/T01/B02", "back": `\\server\new\table`, "spaced": "  spaced out  ",
		"forms": "&a\"2M&\"\xff\n\"\"\\\U0001f512\n\u00e9\afkZR\"#[?k\a\n\u2028sOP6^1%/p(\x04#\ufffd\x02\x84\"\x011:)ZK2'\"\"\"",
		"marks": "\u00e9\ufffd\ufffd\nand the second line", "latin": "caf\xe9\xe9\nand the last line",
		"hex": "x41\"   \x00        ", "return": "r\n\"\a\b\f!!", "mark": "ufffd\xff\"\a!!", "twice": "mark\ufffd\ufffd\"!",
		"json": "{\n\"key\":\n\"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\",\n\"v\": 1\n}\n",
	})
	for text, want := range map[string]string{
		plain:                          "no secret is in [secret password]",
		"hunter2-and-more-of-it":       "[secret longer]",
		"hunter2-and-more, of":         "[secret password], of",
		"hunter2-and-morehunter2-and-": "[secret password][secret password]",
		`CORP\hunter2-and-more`:        "CORP[secret password]",
		"it was hunter2":               "it was hunter2", // too little to tell by
		"r2-and-more was it":           "[secret password] was it",
		"it was hunter2-and-mo":        "it was [secret password]",
		"a MIIEvQIBADANBg b":           "a [secret pem] b",
		"1234":                         "[secret pem]",
		"\u00e9\ufffd\ufffd":           "[secret marks]", // eight bytes, which are five when they are looked for
		"\u2028sOP6^1%/p(\x04#\ufffd\x02\x84\"\x011:)ZK2'\"\"\"": "[secret forms]", // as it is, and with a U+FFFD
		"caf\ufffd\ufffd":          "[secret latin]",
		"error: 1234":              "error: [secret pem]",
		"bad MIIEvQIBADANBg: 1234": "bad [secret pem]: [secret pem]",
		"bad config ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789: }":      "bad config [secret json]: }",
		`bad config ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789: "key":`: `bad config [secret json]: [secret json]`,
		"}":                "}", // tells nothing
		"12345, 1234 more": "12345, 1234 more",
		`{"a":"-----BEGIN-----\nMIIEvQIBADANBg"}`: `{"a":"[secret pem]"}`,
		`{"a":"say \"please\" \\o\/"}`:            `{"a":"[secret quoted]"}`,
		`say "please" \o/`:                        "[secret quoted]",
		`"{\"a\":\"say \\\"please\\\" \\\\o/\"}"`: `"{\"a\":\"[secret quoted]\"}"`,
		`{"a":"<b>\"\u0001&amp\/"}`:               `{"a":"[secret odd]"}`,
		`{"a":"\u003cb\u003e\"\u0001\u0026amp/"}`: `{"a":"[secret odd]"}`,
		`bucket: "<b>\"\x01&amp/"`:                `bucket: "[secret odd]"`,
		"x\xff\xfea\x80bcdefgh\xc3x":              "x[secret bytes]x",
		`"\xff\xfea\x80bcdefgh\xc3"`:              `"[secret bytes]"`,
		`"\ufffd\ufffda\uFFFDbcdefgh\ufffd"`:      `"[secret bytes]"`,
		"\ufffda\ufffdbcdefgh\ufffd!":             "[secret bytes]!",
		"ring\athe\bbell\rnow":                    "[secret bell]",
		`ring\x07the\x08bell\x0dnow`:              "[secret bell]",
		`ring\u0007the\bbell\rnow`:                "[secret bell]",
		`"a\u{1f512}bé` + `c\0d\'"`:               `"[secret rust]"`,
		`"a\ud83d\uDD12b\u00e9c\u0000d'"`:         `"[secret rust]"`,
		`a\U0001f512b\U000000e9c\x00d'`:           `[secret rust]`,
		"see https://example.com":                 "see https://example.com",
		"post to https://hooks.example.com/T0":    "post to [secret url]",
		`\\server\new\table`:                      "[secret back]",
		`"\\\\server\\new\\table"`:                `"[secret back]"`,
		"[spaced out]":                            "[[secret spaced]]",
		`C:\x41"   \x00        `:                  `C:\[secret hex]` + "        ", // the quote is the first escape
		`C:\r\n\"\a\b\f!!`:                        `C:\[secret return]`,
		`C:\ufffd\ufffd\"\a!!`:                    `C:\[secret mark]`,
		`mark\xEF\xBF\xBD\xEF\xBF\xBD\"!`:         "[secret twice]",
		`C:\x41"   `:                              `C:\x41"   `,
		"bell\a \xff\x1b":                         `bell\x07 ` + "\ufffd" + `\x1b`,
	} {
		got := s.Text([]byte(text))
		if got != want || s.In([]byte(text)) != strings.Contains(want, "[secret ") {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		if again := s.Text([]byte(got)); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	}
}

// writers write a value as languages do, into a text of their own.
var writers = map[string]func(value string) string{
	"raw":         func(v string) string { return v },
	"escaped":     func(v string) string { return redact.Escape([]byte(v)) },
	"valid":       func(v string) string { return strings.ToValidUTF8(v, "\ufffd") },
	"go":          strconv.Quote,
	"go, ascii":   strconv.QuoteToASCII,
	"json":        quoteJSON,
	"json, twice": func(v string) string { return quoteJSON(quoteJSON(v)) },
	"json in go":  func(v string) string { return strconv.Quote(quoteJSON(v)) },
	"error":       func(v string) string { return fmt.Sprintf("bucket %q", "a: "+v) },
	"slashes":     func(v string) string { return strings.ReplaceAll(quoteJSON(v), "/", `\/`) },
	"hexadecimal": func(v string) string {
		var out strings.Builder
		for i := range len(v) {
			fmt.Fprintf(&out, `\x%02X`, v[i])
		}
		return out.String()
	},
}

func TestLines(t *testing.T) {
	t.Parallel()
	s := given(map[string]string{"password": "hunter2-and-more", "pem": "-----BEGIN-----\nMIIEvQIBADANBg\n1234\n"})
	for text, want := range map[string]string{
		"one":                                  "one",
		"a\n\n\tb\r\n\x1b[31mc\n":              "a\n\n\tb\n\\x1b[31mc\n",
		"Error: hunter2-and-more\n    at main": "Error: [secret password]\n    at main",
		"a -----BEGIN-----\r\nMIIEvQIBADANBg\r\n1234 b": "a [secret pem] b",
		"Error: bad\n1234\nat 1234":                     "Error: bad\n[secret pem]\nat 1234", // alone in its line, and beside other text
	} {
		if got := s.Lines([]byte(text)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func quoteJSON(v string) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// values are secrets of any bytes, more often of those that somebody escapes.
var values = rapid.Custom(func(t *rapid.T) string {
	odd := rapid.SampledFrom([]string{"\\", "\"", "\n", "\r\n", "\r", "\a", "\b", "\x00", "\x7f", "\xff", "\xc3", "é", "🔒", "\u2028", "\ufffd", "/", "<", "'", "n", "x41", "u0041", "ufffd", "0", "1"})
	piece := rapid.OneOf(odd, rapid.StringMatching(`[ -~]{1,4}`), rapid.Map(rapid.Byte(), func(b byte) string { return string([]byte{b}) }))
	return strings.Join(rapid.SliceOfN(piece, 1, 60).Draw(t, "value"), "")
})

// TestNoForm: in no form is there more of a secret to see than little.
func TestNoForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := values.Draw(t, "secret")
		s := given(map[string]string{"api_key": value})
		before := rapid.SampledFrom([]string{"", "key: ", `C:\`, `\x4`, `\u00`, `\ufffd\`, "=", "\xff", "\x1b[1m", "é"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", "!", " x", "\n", "\xff", "\\"}).Draw(t, "after")
		for name, write := range writers {
			text := before + write(value) + after
			got := s.Text([]byte(text))
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\x00\u2028\u2029\u0085") {
				t.Fatalf("%s: %q is %q", name, text, got)
			}
			if piece := shown(value, write, strings.ReplaceAll(got, "[secret api_key]", "\x00")); piece != "" {
				t.Fatalf("%s: %q shows %q: %q", name, text, piece, got)
			}
		}
	})
}

// shown is a piece of a value that a text shows as a language writes it. As a piece counts one that would be found in
// every form: eight characters between space and tilde that nobody escapes.
func shown(value string, write func(string) string, text string) string {
	plain := strings.Count(value, "") - strings.Count(value, "\\")*8
	for i := 0; i+8 <= len(value) && plain > 16; i++ {
		piece := value[i : i+8]
		if strings.Trim(piece, " \n\r") == piece && !strings.ContainsFunc(piece, func(r rune) bool { return r == utf8.RuneError }) {
			for _, form := range []string{piece, redact.Escape([]byte(piece)), strings.Trim(write(piece), `"`)} {
				if len(form) >= 8 && strings.Contains(text, form) { // less is left of a piece that has quotes itself
					return form
				}
			}
		}
	}
	return ""
}

// TestCuts: where a text ends within a secret, or begins within one, seven bytes are shown at most.
func TestCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[a-zA-Z0-9]{8,200}`).Draw(t, "secret")
		from := rapid.IntRange(0, len(value)).Draw(t, "from")
		to := rapid.IntRange(from, len(value)).Draw(t, "to")
		s := given(map[string]string{"api_key": value})
		for _, text := range []string{value[from:] + ".", "." + value[:to], "." + value[from:to] + "."} {
			most := 7
			if !strings.HasPrefix(text, value[from:]) && !strings.HasSuffix(text, value[:to]) {
				most = 15
			}
			got := strings.ReplaceAll(s.Text([]byte(text)), "[secret api_key]", "")
			if len(got) > most+2 {
				t.Fatalf("%q of %q is %q", text, value, got)
			}
		}
	})
}

// TestRepetitive: a secret that repeats itself, in a text that does, takes no longer than another one.
func TestRepetitive(t *testing.T) {
	t.Parallel()
	s := given(map[string]string{"zeros": strings.Repeat("0", 64<<10), "lines": strings.Repeat("password=\n", 6000)})
	if got := s.Text([]byte(strings.Repeat("0", 64<<10))); got != "[secret zeros]" {
		t.Errorf("%.100q", got)
	}
	if got := s.Text([]byte(strings.Repeat("00000001", 8<<10))); len(got) != 64<<10 {
		t.Errorf("%.100q", got)
	}
}

// TestManyLines: the work for a secret grows with its size, not with the square of it, which would take a quarter of an
// hour here.
func TestManyLines(t *testing.T) {
	t.Parallel()
	var value strings.Builder
	for line := 10_000_000; value.Len() < 2<<20; line++ {
		fmt.Fprintln(&value, line)
	}
	shown := make(chan string, 1)
	go func() {
		shown <- given(map[string]string{"lines": value.String()}).Text([]byte("a 10200000 b"))
	}()
	select {
	case got := <-shown:
		if got != "a [secret lines] b" {
			t.Errorf("%q", got)
		}
	case <-time.After(time.Minute):
		t.Error("it has taken a minute, and should take a second")
	}
}

// FuzzText: what is left of a line cannot end it, move a cursor, or be taken for something else.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b[0m", "\xff\xfe", "a\u2028b", "grüße\t", "\U000e0001", `\u{41}\ud83d\ude00\xff`, `\`, `\u`, `\u{`, `\ud83d\`, `\x4`, "\r\n"} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, line, secret []byte) {
		s := &redact.Secrets{}
		for _, given := range []bool{false, true} {
			if given {
				s.Add("key", secret)
			}
			got := s.Text(line)
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\x00\u2028\u2029\u0085") {
				t.Errorf("%q is %q", line, got)
			}
			if again := s.Text([]byte(got)); again != got && !given {
				t.Errorf("not stable: %q, %q", got, again)
			}
		}
	})
}

// BenchmarkAdd has a secret of many short lines.
func BenchmarkAdd(b *testing.B) {
	var value []byte
	for i := 0; len(value) < 64<<10; i++ {
		value = fmt.Appendf(value, "%08d\n", i)
	}
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		new(redact.Secrets).Add("key", value)
	}
}

// TestAllocations: what a text takes does not depend on how many escapes it has.
func TestAllocations(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	s := given(map[string]string{"key": "hunter2-and-more"})
	for _, escape := range []string{`\n`, `\\`, `\x41`, `\xyz`, `\0`, `\u0041`, `\ud83d\ude00`, `\u{1f512}`, `\U0001f512`, `\U110000000`, "\xff", "é"} {
		allocs := func(n int) float64 {
			text := []byte(strings.Repeat(escape, n))
			return testing.AllocsPerRun(10, func() { s.In(text) })
		}
		if few, many := allocs(10), allocs(1000); many > few {
			t.Errorf("%d times %q take %v allocations, 10 of them %v", 1000, escape, many, few)
		}
	}
}

func BenchmarkText(b *testing.B) {
	secret := &redact.Secrets{}
	secret.Add("key", []byte(strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz/+ABC\n", 40)))
	repetitive := &redact.Secrets{}
	repetitive.Add("key", []byte(strings.Repeat("00000000000000-\n", 100)))
	for name, bench := range map[string]struct {
		secrets *redact.Secrets
		line    string
	}{
		"none":       {nil, "a line of a log as a plugin writes it, "},
		"pem":        {secret, "a line of a log as a plugin writes it, "},
		"found":      {secret, "0123456789abcdefghijklmnopqrstuvwxyz/+ABC, "},
		"invalid":    {secret, "\xff\xfe\x80a"},
		"escapes":    {secret, `\n\\\x41\0`},
		"runes":      {secret, `\u0041\ud83d\ude00\u{1f512}`},
		"characters": {secret, "\u2028é\r"},
		"nearly":     {repetitive, "00000000"},
	} {
		b.Run(name, func(b *testing.B) {
			line := []byte(strings.Repeat(bench.line, 800/len(bench.line)))
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				bench.secrets.Text(line)
			}
		})
	}
}

// FuzzCut: what is cut is as long as it may be, and no rune of it is cut.
func FuzzCut(f *testing.F) {
	for _, seed := range []string{"plain", "\xff\xfe", "grüße\t", "\U000e0001"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for n := range len(line) + 2 {
			head, tail := redact.Prefix(line, n), redact.Suffix(line, n)
			if len(head) > n || len(tail) > n || (utf8.Valid(line) && !(utf8.Valid(head) && utf8.Valid(tail))) {
				t.Errorf("prefix = %q, suffix = %q of %q, %d", head, tail, line, n)
			}
		}
	})
}
