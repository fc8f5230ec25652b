package egress

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseGrant(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"https://api.example.com":      `{host: "https://api.example.com", methods: [GET, POST]}`,
		"https://API.example.com.:443": `{host: "https://api.example.com", methods: [GET, POST]}`,
		"http://minio:9000":            `{host: "http://minio:9000", methods: [GET, POST]}`,
		"https://*.example.com:8443":   `{host: "https://*.example.com:8443", methods: [GET, POST]}`,
		"http://10.0.0.7":              `{host: "http://10.0.0.7", methods: [GET, POST]}`,
		"http://[FD00::7]:8080":        `{host: "http://[fd00::7]:8080", methods: [GET, POST]}`,
		"https://xn--bcher-kva.test":   `{host: "https://xn--bcher-kva.test", methods: [GET, POST]}`,
	} {
		g, err := ParseGrant(host, []string{"GET", "POST"})
		if err != nil {
			t.Errorf("%q: %v", host, err)
		} else if g.String() != want {
			t.Errorf("%q is %s, want %s", host, g, want)
		}
	}
}

func TestParseGrantErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, methods, want string }{
		{"api.example.com", "GET", `host "api.example.com": has no scheme: use one such as https://api.example.com`},
		{"HTTPS://api.example.com", "GET", `use https or http`},
		{"ftp://api.example.com", "GET", `has the scheme "ftp": use https or http`},
		{"https://", "GET", `is empty`},
		{"https://api.example.com/", "GET", `has a path, a query or a fragment: leave it out`},
		{"https://api.example.com?q", "GET", `leave it out`},
		{"https://*", "GET", `use one such as https://*.example.com`},
		{"https://*.", "GET", `is empty`},
		{"https://*.*.example.com", "GET", `use one such as https://*.example.com`},
		{"https://a*.example.com", "GET", `use one such as https://*.example.com`},
		{"https://*.10.0.0.1", "GET", `use the address alone`},
		{"https://*.[::1]", "GET", `use the address alone`},
		{"https://bücher.example", "GET", `use its Punycode (xn--…)`},
		{"https://\u212aelvin.example", "GET", `use its Punycode (xn--…)`},
		{"https://[::ffff:10.0.0.1]", "GET", `use the IPv4 address`},
		{"https://[fe80::1%eth0]", "GET", `has a zone: leave it out`},
		{"https://127.1", "GET", `use four decimal numbers`},
		{"https://api.example.com:0", "GET", `use 1 to 65535`},
		{"https://api.example.com:", "GET", `use 1 to 65535`},
		{"https://me:secret@api.example.com", "GET", `host: has a user or a password before it: use a header for these`},
		{"https://api.example.com", "", `methods: there are none: list those that are granted, such as [GET]`},
		{"https://api.example.com", "get", `methods: "get": has small letters: use GET`},
		{"https://api.example.com", "GET GET", `methods: "GET": is there twice`},
		{"https://api.example.com", "CONNECT", `methods: "CONNECT": is never sent`},
		{"https://api.example.com", "TRACE", `methods: "TRACE": is never sent`},
		{"https://api.example.com", "G(T", `methods: "G(T": is no method`},
		{"https://api.example.com", strings.Repeat("A", 33), `of at most 32 bytes`},
	} {
		g, err := ParseGrant(c.host, strings.Fields(c.methods))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q %q: error %v, want %q", c.host, c.methods, err, c.want)
		}
		if granted([]Grant{g}, "GET", target{}) || granted([]Grant{g}, "", target{}) {
			t.Errorf("%q: the grant of an error allows something", c.host)
		}
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grant   string
		url     string
		allowed bool
	}{
		{"https://api.example.com", "https://api.example.com/x", true},
		{"https://api.example.com", "https://API.example.com.:443", true},
		{"https://api.example.com", "http://api.example.com", false},
		{"https://api.example.com", "http://api.example.com:443", false},
		{"https://api.example.com", "https://api.example.com:8443", false},
		{"https://api.example.com", "https://example.com", false},
		{"https://api.example.com", "https://x.api.example.com", false},
		{"https://api.example.com", "https://api.example.com.evil.com", false},
		{"https://*.example.com", "https://a.example.com", true},
		{"https://*.example.com", "https://a.b.example.com", true},
		{"https://*.example.com", "https://example.com", false},
		{"https://*.example.com", "https://badexample.com", false},
		{"https://*.example.com", "https://a.example.com:444", false},
		{"https://*.example.com", "https://a.example.com.evil.com", false},
		{"http://10.0.0.7:81", "http://10.0.0.7:81", true},
		{"http://10.0.0.7:81", "http://10.0.0.7", false},
		{"http://10.0.0.7", "http://10.0.0.70", false},
		{"http://[fd00::7]", "http://[fd00:0:0::7]:80", true},
		{"http://[fd00::7]", "http://[fd00::8]", false},
	} {
		got, _, err := parseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		g := grants(t, c.grant)[0]
		if granted([]Grant{g}, "GET", got) != c.allowed {
			t.Errorf("%s allows %s: %v, want %v", g, c.url, !c.allowed, c.allowed)
		}
		if granted([]Grant{g}, "QUERY", got) || granted([]Grant{g}, "get", got) || granted([]Grant{g}, "", got) {
			t.Errorf("%s allows another method", g)
		}
	}
}

// TestGrantIsRead checks that what a grant says of itself is the same grant.
func TestGrantIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.StringMatching(`https?://(\*\.)?[a-z]{1,5}(\.[a-z]{1,5}){0,2}(:[1-9][0-9]{0,3})?`).Draw(t, "host")
		g, err := ParseGrant(host, []string{"GET"})
		if err != nil {
			t.Fatal(err)
		}
		written, _, _ := strings.Cut(strings.TrimPrefix(g.String(), `{host: "`), `"`)
		again, err := ParseGrant(written, []string{"GET"})
		if err != nil || again.origin != g.origin || again.wildcard != g.wildcard || !slices.Equal(again.methods, g.methods) {
			t.Fatalf("%q is %s, and that is %s, %v", host, g, again, err)
		}
	})
}

// TestCommon: a request is allowed by what two lists have in common exactly if both allow it.
func TestCommon(t *testing.T) {
	t.Parallel()
	hosts := []string{"https://example.com", "https://a.example.com", "https://b.a.example.com", "http://a.example.com", "https://a.example.com:8443", "https://10.0.0.7"}
	written := append([]string{"https://*.example.com", "https://*.a.example.com", "https://*.com", "http://*.example.com"}, hosts...)
	methods := []string{"GET", "POST", "PUT"}
	some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Grant {
		g, err := ParseGrant(rapid.SampledFrom(written).Draw(t, "host"), rapid.SliceOfNDistinct(rapid.SampledFrom(methods), 1, 3, rapid.ID).Draw(t, "methods"))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := some.Draw(t, "a"), some.Draw(t, "b")
		both := Common(a, b)
		for _, host := range hosts {
			to, _, err := parseURL(host)
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range methods {
				if got, want := granted(both, method, to), granted(a, method, to) && granted(b, method, to); got != want {
					t.Fatalf("%s and %s are %s, which allow %s %s: %v, want %v", a, b, both, method, host, got, want)
				}
			}
		}
		for i, g := range both {
			if slices.ContainsFunc(both[:i], func(o Grant) bool { return o.Host() == g.Host() }) {
				t.Fatalf("%s and %s are %s, with one host twice", a, b, both)
			}
		}
	})
}
