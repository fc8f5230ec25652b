package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quern-project/quern/sdk"
)

// What Do does with a host is tested by package sdktest, beside a real one.
func TestErrNoHost(t *testing.T) {
	t.Parallel()
	_, err := Get(t.Context(), "https://me:secret@a.example/path?secret")
	if !errors.Is(err, sdk.ErrNoHost) || strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), "GET https://a.example/path: ") {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Post(over, "https://a.example/", "text/plain", nil); !errors.Is(err, context.Canceled) || errors.Is(err, sdk.ErrNoHost) {
		t.Error(err)
	}
}

// An error names the request once, and then the host's reason.
func TestReason(t *testing.T) {
	t.Parallel()
	for why, want := range map[string]string{
		"": "",
		"GET https://a.example:81: unavailable: connection refused": "unavailable: connection refused",
		"invalid: method \"x\": bad":                                "invalid: method \"x\": bad",
	} {
		if got := reason("GET", why); got != want {
			t.Errorf("%q: %q, want %q", why, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                "",
		"https://a.example":               "https://a.example",
		"https://a.example/":              "https://a.example/",
		"https://a.example/a@b/c":         "https://a.example/a@b/c",
		"https://a.example?key=x":         "https://a.example",
		"https://a.example/p#x?y":         "https://a.example/p",
		"https://u:p@a.example:80/p":      "https://a.example:80/p",
		"https://u:p@ss@a.example":        "https://a.example",
		"a.example/p?x":                   "a.example/p",
		"https://a.example/?u=http://x@y": "https://a.example/",
	} {
		if got := shown(url); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	answer := func(head, body string) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head+body...)
	}
	r, err := parse(answer(`{"status": 201, "headers": {"a": ["b", "c"]}}`, "body"))
	if err != nil || r.Status != 201 || !slices.Equal(r.Header["a"], []string{"b", "c"}) || r.Value("A") != "b" || r.Value("b") != "" || string(r.Body) != "body" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := parse(answer(`{}`, "")); err != nil || r.Value("a") != "" || len(r.Body) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, wrong := range [][]byte{nil, {1, 0, 0}, {1, 0, 0, 0}, {255, 255, 255, 255, '{', '}'}, answer(`{"status": "x"}`, ""), answer("", "{}")} {
		if r, err := parse(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, r)
		}
	}
}

func TestResponseErr(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock stands at midnight of 2000
		for _, tt := range []struct {
			status     int
			retryAfter string
			ok, again  bool
			after      time.Duration
		}{
			{200, "", true, false, 0},
			{299, "5", true, false, 0},
			{302, "5", false, false, 0},
			{404, "", false, false, 0},
			{429, "5", false, true, 5 * time.Second},
			{503, "", false, false, 0},
			{503, "0", false, true, 0},
			{503, "-5", false, false, 0},
			{503, "soon", false, false, 0},
			{503, "99999999999", false, true, 365 * 24 * time.Hour},
			{503, "Sat, 01 Jan 2000 00:01:00 GMT", false, true, time.Minute},
			{503, "Fri, 31 Dec 1999 00:01:00 GMT", false, true, 0},
			{503, "2147483647", false, true, 365 * 24 * time.Hour},
		} {
			r := &Response{Status: tt.status, Header: map[string][]string{"retry-after": {tt.retryAfter}}}
			err := r.Err()
			retry, again := errors.AsType[*sdk.RetryError](err)
			if (err == nil) != tt.ok || again != tt.again || again && retry.After != tt.after {
				t.Errorf("%d %q: %#v", tt.status, tt.retryAfter, err)
			}
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) { // its clock stands at midnight of 2000
		for value, want := range map[string]time.Duration{
			"0": 0, "7": 7 * time.Second, " 7\t": 7 * time.Second, "007": 7 * time.Second,
			"31536000": year, "31536001": year, "9223372037": year, "18446744073709551616": year, strings.Repeat("9", 1000): year,
			"Sat, 01 Jan 2000 00:01:00 GMT": time.Minute, "Saturday, 01-Jan-00 00:01:00 GMT": time.Minute, "Sat Jan  1 00:01:00 2000": time.Minute,
			"Fri, 31 Dec 1999 00:01:00 GMT": 0, "Mon, 01 Jan 0001 00:00:00 GMT": 0, "Fri, 31 Dec 9999 00:00:00 GMT": year,
		} {
			r := &Response{Header: map[string][]string{"retry-after": {value, "1"}}}
			if got, ok := r.RetryAfter(); got != want || !ok {
				t.Errorf("%.30q: %v, %t, want %v", value, got, ok, want)
			}
		}
		for _, value := range []string{"", " ", "-5", "+5", "1.5", "0x1", "5 s", "soon", "Sat, 01 Jan 2000 00:01:00 CET"} {
			r := &Response{Header: map[string][]string{"retry-after": {value}}}
			if got, ok := r.RetryAfter(); got != 0 || ok {
				t.Errorf("%q: %v", value, got)
			}
		}
	})
	if got, ok := (&Response{}).RetryAfter(); got != 0 || ok {
		t.Errorf("no header: %v", got)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]string{
		-time.Second: "", 0: "", 1: `,"timeout_ms":1`, time.Millisecond: `,"timeout_ms":1`, time.Millisecond + 1: `,"timeout_ms":2`,
		time.Minute: `,"timeout_ms":60000`, 1<<63 - 1: `,"timeout_ms":9223372036855`,
	} {
		got, err := format(Request{Method: "GET", URL: "https://a.example/?b&c", Timeout: timeout})
		if want := `{"method":"GET","url":"https://a.example/?b\u0026c"` + want + "}"; string(got) != want || err != nil {
			t.Errorf("%v: %s, %v, want %s", timeout, got, err, want)
		}
	}
	got, err := format(Request{Header: map[string][]string{"A": {"b", "c"}}, Body: []byte("body")})
	if want := `{"method":"","url":"","headers":{"A":["b","c"]}}`; string(got) != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
