package egress

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/service"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com":                      "https://example.com",
		"HTTPS://Example.COM/":                     "https://example.com/",
		"https://example.com./a?b=c#d":             "https://example.com/a?b=c",
		"https://example.com:443/a%2Fb":            "https://example.com/a%2Fb",
		"http://example.com:443":                   "http://example.com:443",
		"http://example.com:80?q":                  "http://example.com?q",
		"https://example.com/@b:c":                 "https://example.com/@b:c",
		"https://example.com?u=http://x@y:1/":      "https://example.com?u=http://x@y:1/",
		"https://xn--bcher-kva.example":            "https://xn--bcher-kva.example",
		"https://a_b.example.com":                  "https://a_b.example.com",
		"https://93.184.216.34:8443/":              "https://93.184.216.34:8443/",
		"https://[2606:2800:220:1:0:0:0:1]/":       "https://[2606:2800:220:1::1]/",
		"https://[2606:2800:220:1::A]:8443/":       "https://[2606:2800:220:1::a]:8443/",
		"https://127.0.0.1.example.com":            "https://127.0.0.1.example.com",
		"https://0x7f.example":                     "https://0x7f.example",
		"https://localhost/":                       "https://localhost/",
		"https://example.com//evil.com/..":         "https://example.com//evil.com/..",
		"https://" + strings.Repeat("a", 63) + "/": "https://" + strings.Repeat("a", 63) + "/",
	} {
		_, u, err := parseURL(raw)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
		} else if u.String() != want {
			t.Errorf("%q is %q, want %q", raw, u, want)
		}
	}
}

// hostile are URLs that no grant may let pass.
var hostile = []string{
	// No URL, no host, another scheme.
	"", "https", "https:", "https:/", "https://", "https:///", "https:///example.com", "//example.com", "example.com", "https:example.com",
	"https://?q", "https://#f", "https://:443/", "https://.", "https://./", "https://..", "https://.example.com", "https://a..b/",
	"ftp://example.com", "file:///etc/passwd", "unix:///run/s", "gopher://example.com", "javascript:alert(1)", "https+unix://example.com",
	" https://example.com", "https ://example.com", "view-source:https://example.com", "blob:https://example.com",
	// A user, a password.
	"https://example.com@evil.com/", "https://user:pass@example.com/", "https://@example.com/", "https://:@example.com", "https://a@b@example.com",
	"https://example.com:443@evil.com", "https://example.com%40evil.com",
	// Separators that readers differ about.
	`https://example.com\@evil.com`, `https://evil.com\.example.com`, `https:\\example.com`, `https://example.com\`, `https:/\example.com`, `https://example.com/a\b`, `https://example.com?a\b`, `https://example.com#\`,
	"https://example.com;evil.com", "https://example.com,evil.com", "https://example.com&evil.com", "https://example.com|evil.com",
	// Control characters, spaces, other letters.
	"https://example.com\r\nHost: evil.com", "https://example.com/\r\nX: y", "https://example.com/\x00", "https://exam\tple.com", "https://example.com /",
	"https://example.com/ ", "https://example.com/\x7f", "https://example.com\n", "\thttps://example.com", "https://example\u3002com",
	"https://\u212aelvin.example.com", "https://example\u2024com", "https://ex\u00adample.com", "https://b\u00fccher.example.com", "https://example.com/\u00e9",
	"https://\uff45xample.com", "https://\u2488\u2488\u2488/", "https://127\uff0e0.0.1", "https://\u2460\u2461\u2466.0.0.1",
	// Escapes in the host.
	"https://%65xample.com", "https://example%2ecom", "https://example.com%00.evil.com", "https://%31%32%37.0.0.1", "https://example.com%2f@evil.com", "https://[::1%25lo]/",
	"https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[%3a%3a1]/",
	// Addresses in odd notations.
	"https://0x7f.1", "https://0x7f.0.0.1", "https://0x7f000001", "https://0X7F000001/", "https://2130706433", "https://127.1", "https://127.0.1", "https://0177.0.0.1", "https://017700000001",
	"https://127.0.0.1.", "https://127.0.0.1..", "https://127.0.0.01", "https://127.0.0.0x1", "https://0", "https://0x", "https://1.2.3.4.5", "https://256.1.1.1", "https://1.2.3", "https://00.0.0.0",
	"https://127.0.0.1:0x50", "https://example.0", "https://example.com.1", "https://example.0x7f", "https://4294967296", "https://1e3.1",
	"https://[::ffff:7f00:1]", "https://[::ffff:127.0.0.1]", "https://[0:0:0:0:0:ffff:7f00:1]", "https://[::FFFF:10.0.0.1]:443", "https://[127.0.0.1]", "https://[example.com]", "https://[]", "https://[::1",
	"https://::1", "https://::1]", "https://[[::1]]", "https://[::1]x", "https://[::1]example.com", "https://[::1]:", "https://[::1].example.com", "https://[v1.x]", "https://[:::1]", "https://fe80::1",
	// Ports.
	"https://example.com:", "https://example.com:/", "https://example.com:0", "https://example.com:65536", "https://example.com:00443", "https://example.com:-1", "https://example.com:+443",
	"https://example.com:443:443", "https://example.com:https", "https://example.com:4 43", "https://example.com:99999999999999999999", "https://example.com:4_43", "https://example.com:\uff14",
	// Names that are none.
	"https://-example.com", "https://example-.com", "https://exam*ple.com", "https://*.example.com", "https://*", "https://exam!ple.com", "https://$(id).example.com", "https://example.com'",
	"https://" + strings.Repeat("a", 64) + ".com", "https://" + strings.Repeat("a.", 127) + "com", "https://example.com%zz", "https://example.com/%zz", "https://example.com/%",
}

// TestHostileURLs grants all that they might be taken for, and the networks as well.
func TestHostileURLs(t *testing.T) {
	t.Parallel()
	h := setup(t, Config{Networks: loopback, resolver: always()}).For("a", grants(t,
		"https://example.com", "https://*.example.com", "http://example.com", "https://evil.com", "https://127.0.0.1", "https://[::1]",
		"https://*.com", "https://localhost",
	), nil)
	for _, raw := range hostile {
		r, err := get(t, h, raw)
		fails(t, r, err, service.ErrInvalid)
		if err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: the error %q has the password", raw, err)
		}
	}
}

// TestParseURLOfAnyHost writes hosts in all ways that mean the same.
func TestParseURLOfAnyHost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9]{0,8}(\.[a-z][a-z0-9]{0,8}){0,3}`).Draw(t, "name")
		written := name
		if rapid.Bool().Draw(t, "capitals") {
			written = strings.ToUpper(written)
		}
		written += rapid.SampledFrom([]string{"", ".", ":443", ".:443"}).Draw(t, "end")
		got, u, err := parseURL("https://" + written + rapid.SampledFrom([]string{"", "/", "?q", "#f"}).Draw(t, "rest"))
		if err != nil {
			t.Fatal(err)
		}
		if want := (target{scheme: "https", host: name, port: 443}); got != want || u.Host != name {
			t.Fatalf("%q is %+v, %q", written, got, u.Host)
		}
	})
}

// FuzzAllowed looks for a URL that passes the grants and means something else to the standard library than to us.
func FuzzAllowed(f *testing.F) {
	for _, raw := range hostile {
		f.Add(raw, "GET")
	}
	for _, raw := range []string{
		"https://example.com/", "https://a.b.example.com:443/x?y#z", "http://127.0.0.1:8080/", "https://[2606:2800::1]/", "https://example.com.", "https://EXAMPLE.com",
		"https://example.com:8443", "http://example.com", "https://sub.evil.com", "https://example.com.evil.com", "https://evilexample.com", "https://x.example.com.",
	} {
		f.Add(raw, "GET")
		f.Add(raw, "POST")
	}
	var all []Grant
	for _, host := range []string{"https://example.com", "https://*.example.com", "http://127.0.0.1:8080", "https://[2606:2800::1]"} {
		g, err := ParseGrant(host, []string{"GET"})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, g)
	}
	p := &plugin{client: &Client{cfg: Config{}.withDefaults()}, grants: all}
	f.Fuzz(func(t *testing.T, raw, method string) {
		_, request, err := p.check(t.Context(), service.Request{Method: method, URL: raw})
		if err != nil {
			if !errors.Is(err, service.ErrInvalid) && !errors.Is(err, service.ErrDenied) && !errors.Is(err, service.ErrTooBig) {
				t.Fatalf("%q %q: error of no kind: %v", method, raw, err)
			}
			return
		}
		if request.Method != "GET" {
			t.Fatalf("%q %q passes with the method %q", method, raw, request.Method)
		}
		u, host := request.URL, request.URL.Host
		below, isBelow := strings.CutSuffix(host, ".example.com")
		switch {
		case u.Scheme == "https" && (host == "example.com" || host == "[2606:2800::1]"):
		case u.Scheme == "https" && isBelow && below != "" && strings.Trim(below, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "":
		case u.Scheme == "http" && host == "127.0.0.1:8080":
		default:
			t.Fatalf("%q passes, to %q", raw, u)
		}
		// The standard library reads the same host from what was written, letters and the end of the name aside.
		theirs, err := url.Parse(raw)
		if err != nil || theirs.User != nil || theirs.Opaque != "" {
			t.Fatalf("%q passes, and is read as %v, %v", raw, theirs, err)
		}
		if h := strings.TrimSuffix(strings.ToLower(theirs.Hostname()), "."); h != u.Hostname() && !strings.Contains(h, ":") {
			t.Fatalf("%q leads to %q, and to %q for the standard library", raw, u.Hostname(), h)
		}
		// What is written to the server is one line, and is read back as the same.
		line := u.RequestURI()
		if request.Host != host || strings.ContainsAny(line, " \r\n\t\x00\\") || line[0] != '/' {
			t.Fatalf("%q is sent as %q to %q", raw, line, request.Host)
		}
		if again, _, err := parseURL(u.String()); err != nil || again.authority() != host {
			t.Fatalf("%q is %q, and that is read as %q, %v", raw, u, again, err)
		}
	})
}
