package egress

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Grant allows requests with some methods to one host, or to all names below a name. It is immutable; the zero value
// allows nothing.
type Grant struct {
	origin   target
	wildcard bool // all names below origin, without origin itself
	methods  []string
}

// ParseGrant parses an element of the list http in a manifest: a host and its methods. host has the form
// "https://api.example.com" or "http://192.0.2.1:8080", or "https://*.example.com" for every name below example.com.
// The default port is 443 or 80, depending on the scheme. Names are ASCII in upper or lower case; other names are
// written in Punycode (RFC 3492). Methods are written in capitals. They can be those of RFC 9110 §9 or others, except
// CONNECT, which opens a tunnel, and TRACE, which would show headers added on the way. Errors name the field, its value
// and the allowed values.
func ParseGrant(host string, methods []string) (Grant, error) {
	g, err := parseHost(host)
	if err != nil {
		if strings.Contains(host, "@") {
			return Grant{}, fmt.Errorf("host: %w", err) // without the value, which can contain a password
		}
		return Grant{}, fmt.Errorf("host %q: %w", host, err)
	}
	if len(methods) == 0 {
		return Grant{}, errors.New("methods: there are none: list those that are granted, such as [GET]")
	}
	for i, m := range methods {
		if err := CheckMethod(m); err != nil {
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

// String returns the grant as it is written in a manifest.
func (g Grant) String() string {
	return fmt.Sprintf("{host: %q, methods: [%s]}", g.Host(), strings.Join(g.methods, ", "))
}

// Host returns the host, or the wildcard for names, as it is written in a manifest.
func (g Grant) Host() string {
	origin := g.origin.String()
	if g.wildcard {
		origin = strings.Replace(origin, "://", "://*.", 1)
	}
	return origin
}

// Methods returns the methods that are granted.
func (g Grant) Methods() []string { return slices.Clone(g.methods) }

// Common returns the grants that allow exactly what both lists allow. It returns one grant for each host or wildcard,
// in the order of the first list.
func Common(a, b []Grant) (grants []Grant) {
	for _, one := range a {
		for _, other := range b {
			both, ok := one.common(other)
			if !ok {
				continue
			}
			same := func(g Grant) bool { return g.origin == both.origin && g.wildcard == both.wildcard }
			if i := slices.IndexFunc(grants, same); i >= 0 {
				for _, m := range both.methods {
					if !slices.Contains(grants[i].methods, m) {
						grants[i].methods = append(grants[i].methods, m)
					}
				}
			} else {
				grants = append(grants, both)
			}
		}
	}
	return grants
}

// common returns the grant of all that both grants allow. ok is false if they allow nothing in common.
func (g Grant) common(other Grant) (both Grant, ok bool) {
	switch {
	case g.covers(other):
		both = other
	case other.covers(g):
		both = g
	}
	both.methods = slices.DeleteFunc(slices.Clone(g.methods),
		func(m string) bool { return !slices.Contains(other.methods, m) })
	return both, both.origin.host != "" && len(both.methods) > 0
}

// covers reports whether g includes all hosts of another grant.
func (g Grant) covers(other Grant) bool {
	if g.origin.scheme != other.origin.scheme || g.origin.port != other.origin.port {
		return false
	}
	if g.origin.host == other.origin.host {
		return g.wildcard == other.wildcard
	}
	below, ok := strings.CutSuffix(other.origin.host, "."+g.origin.host)
	return g.wildcard && ok && below != "" && !other.origin.addr.IsValid()
}

// granted reports whether one of the grants allows a request.
func granted(grants []Grant, method string, t target) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool {
		return slices.Contains(g.methods, method) && g.covers(Grant{origin: t})
	})
}
