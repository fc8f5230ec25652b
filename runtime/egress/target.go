package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// target is the destination of a request: scheme, host and port, normalized for comparison.
type target struct {
	scheme string     // "http" or "https"
	host   string     // a lower-case name without a final dot, or an address as netip writes it
	addr   netip.Addr // valid if the host is an address
	port   uint16     // never 0
}

// String returns a URL without a path, and without the scheme's default port.
func (t target) String() string { return t.scheme + "://" + t.authority() }

// authority returns the host and port for the URL and the Host header.
func (t target) authority() string {
	if t.port != ownPort(t.scheme) {
		return net.JoinHostPort(t.host, strconv.Itoa(int(t.port)))
	}
	if t.addr.Is6() {
		return "[" + t.host + "]"
	}
	return t.host
}

// isLoopback reports whether the host is a loopback address or localhost. Other names can also resolve to a loopback
// address, but the author of the manifest does not decide when they do.
func (t target) isLoopback() bool { return t.addr.IsLoopback() || t.host == "localhost" }

// ownPort returns the default port of a scheme (RFC 9110 §4.2).
func ownPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// CheckURL refuses a URL that no request can have.
func CheckURL(raw string) error {
	_, _, err := parseURL(raw)
	return err
}

// parseURL parses a URL. The authority of the returned URL is made from the target, so the URL leads to the target.
// Errors contain no path, query or password.
func parseURL(raw string) (target, *url.URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return target{}, nil, errors.New("the URL does not begin with https:// or http://")
	}
	authority := rest
	if end := strings.IndexAny(rest, `/?#\`); end >= 0 {
		authority, rest = rest[:end], rest[end:]
	} else {
		rest = ""
	}
	t, err := parseAuthority(scheme, authority)
	if err != nil {
		return target{}, nil, fmt.Errorf("the URL's host %w", err)
	}
	for i := range len(rest) {
		// RFC 3986 §2: other bytes are percent-encoded. Some parsers read a backslash as a slash.
		if c := rest[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return target{}, nil, fmt.Errorf("the URL has the byte 0x%02x: percent-encode it", c)
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != scheme || u.Host != authority || u.User != nil || u.Opaque != "" {
		return target{}, nil, errors.New("the URL is none of RFC 3986")
	}
	u.Host, u.Fragment, u.RawFragment = t.authority(), "", ""
	return t, u, nil
}

// parseAuthority parses host and port. The texts of its errors continue a text that ends in "host".
func parseAuthority(scheme, authority string) (target, error) {
	t := target{scheme: scheme, port: ownPort(scheme)}
	if strings.Contains(authority, "@") {
		return target{}, errors.New("has a user or a password before it: use a header for these")
	}
	host, port, hasPort := strings.Cut(authority, ":")
	var err error
	if inside, ok := strings.CutPrefix(authority, "["); ok {
		var after string
		if host, after, ok = strings.Cut(inside, "]"); !ok {
			return target{}, errors.New(`has a "[" without a "]"`)
		}
		if port, hasPort = strings.CutPrefix(after, ":"); !hasPort && after != "" {
			return target{}, errors.New(`has more than a port after its "]"`)
		}
		t.addr, err = parseAddr6(host)
		t.host = t.addr.String()
	} else {
		t.host, t.addr, err = parseName(host)
	}
	if err != nil {
		return target{}, err
	}
	if hasPort {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || port != strconv.FormatUint(number, 10) {
			return target{}, errors.New("has a port that is none: use 1 to 65535, or leave it out with its colon")
		}
		t.port = uint16(number)
	}
	return t, nil
}

// parseAddr6 parses an IPv6 address between brackets (RFC 3986 §3.2.2). Zones (RFC 6874) are refused, because they name
// links of this host.
func parseAddr6(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil || !addr.Is6():
		return netip.Addr{}, errors.New("has brackets around what is no IPv6 address")
	case addr.Zone() != "":
		return netip.Addr{}, errors.New("has a zone: leave it out")
	case addr.Is4In6():
		return netip.Addr{}, errors.New("is an IPv4 address in the form of IPv6: use the IPv4 address")
	}
	return addr, nil
}

// parseName parses a DNS name or an IPv4 address. A host that ends in a number is an address, as in the WHATWG URL
// standard, and must be four decimal numbers: resolvers disagree about octal, hexadecimal and fewer numbers.
func parseName(s string) (string, netip.Addr, error) {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.':
		case c == '_': // occurs in host names of storage buckets
		case c >= 0x80: // checked before ToLower, which turns the Kelvin sign into a k
			return "", netip.Addr{}, errors.New("has letters that are not ASCII: use its Punycode (xn--…)")
		default:
			return "", netip.Addr{}, fmt.Errorf("has %q: use letters, digits, -, _ and dots", c)
		}
	}
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	if name == "" {
		return "", netip.Addr{}, errors.New("is empty")
	}
	if isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return "", netip.Addr{}, errors.New("ends in a number, and is no IPv4 address: use four decimal numbers, without zeros before them")
		}
		return addr.String(), addr, nil
	}
	if len(name) > 253 {
		return "", netip.Addr{}, fmt.Errorf("has %d bytes: use at most 253", len(name)) // RFC 1035 §2.3.4
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", netip.Addr{}, errors.New("has a label that is none: use 1 to 63 bytes that neither begin nor end with a hyphen")
		}
	}
	return name, netip.Addr{}, nil
}

// isNumber reports whether some resolver reads a label as a number: decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}
