package egress

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Grant allows requests to one host, or to all names below one, by some methods. It does not change, and its zero
// value allows nothing.
type Grant struct {
	origin   target
	wildcard bool // origin is what the names end in, and is not granted itself
	methods  []string
}

// ParseGrant reads an element of a manifest's http: a host such as "https://api.example.com",
// "https://*.example.com" for every name below that one, or "http://192.0.2.1:8080", and the methods, in capitals.
// Without a port it is that of the scheme, 443 or 80. Names are of ASCII, in either case; others are written in
// Punycode (RFC 3492). Methods are those of RFC 9110 §9 or others, but neither CONNECT nor TRACE: the one is a
// tunnel, and the other would show what was added on the way. Errors name the field, its value and what it may be.
func ParseGrant(host string, methods []string) (Grant, error) {
	g, err := parseHost(host)
	if err != nil {
		if strings.Contains(host, "@") {
			return Grant{}, fmt.Errorf("host: %w", err) // without the value, which may hold a password
		}
		return Grant{}, fmt.Errorf("host %q: %w", host, err)
	}
	if len(methods) == 0 {
		return Grant{}, errors.New("methods: there are none: list those that are granted, such as [GET]")
	}
	for i, m := range methods {
		if err := checkMethod(m); err != nil {
			return Grant{}, fmt.Errorf("methods: %q: %w", m, err)
		}
		if slices.Contains(methods[:i], m) {
			return Grant{}, fmt.Errorf("methods: %q: is there twice: leave out one", m)
		}
	}
	g.methods = slices.Clone(methods)
	return g, nil
}

func parseHost(host string) (Grant, error) {
	scheme, authority, ok := strings.Cut(host, "://")
	if !ok {
		return Grant{}, errors.New("has no scheme: use one such as https://api.example.com")
	}
	if scheme != "https" && scheme != "http" {
		return Grant{}, fmt.Errorf("has the scheme %q: use https or http", scheme)
	}
	if strings.ContainsAny(authority, "/?#\\") {
		return Grant{}, errors.New("has a path, a query or a fragment: leave it out, a host is granted as a whole")
	}
	below, wildcard := strings.CutPrefix(authority, "*.")
	if strings.Contains(below, "*") {
		return Grant{}, errors.New(`has a "*" that is not its whole first label: use one such as https://*.example.com`)
	}
	origin, err := parseAuthority(scheme, below)
	if err != nil {
		return Grant{}, err
	}
	if wildcard && origin.addr.IsValid() {
		return Grant{}, errors.New(`has a "*" before an address: use the address alone`)
	}
	return Grant{origin: origin, wildcard: wildcard}, nil
}

// String is the grant as a manifest has it.
func (g Grant) String() string {
	origin := g.origin.String()
	if g.wildcard {
		origin = strings.Replace(origin, "://", "://*.", 1)
	}
	return fmt.Sprintf("{host: %q, methods: [%s]}", origin, strings.Join(g.methods, ", "))
}

// allows tells whether a request is granted.
func (g Grant) allows(method string, t target) bool {
	if g.origin.scheme != t.scheme || g.origin.port != t.port || !slices.Contains(g.methods, method) {
		return false
	}
	if g.wildcard {
		below, ok := strings.CutSuffix(t.host, "."+g.origin.host)
		return ok && below != "" && !t.addr.IsValid()
	}
	return g.origin.host == t.host
}

// granted tells whether one of the grants allows a request.
func granted(grants []Grant, method string, t target) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool { return g.allows(method, t) })
}
