package egress

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime/service"
)

// userAgent is the User-Agent of a request that sets none.
const userAgent = "Quern"

// maxMethod bounds a method, in bytes.
const maxMethod = 32

// ours are the headers that a guest may not set, in canonical form: they frame the message (RFC 9112 §6), belong to one
// connection (RFC 9110 §7.6.1), direct it, or wait for the server (RFC 9110 §10.1.1). CGI would turn a header "Proxy"
// into the variable HTTP_PROXY.
var ours = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Http2-Settings": true, "Keep-Alive": true,
	"Proxy": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// claims are the headers, in canonical form, by which a server sees another request than the granted one: another
// method, origin or destination (RFC 7239). They stay in answers, where they do no harm.
var claims = map[string]bool{
	"Forwarded": true, "X-Http-Method": true, "X-Http-Method-Override": true, "X-Method-Override": true,
}

// isOurs treats an underscore as a hyphen, like servers that make variables of headers.
func isOurs(name string) bool {
	name = canonical(name)
	return ours[name] || strings.HasPrefix(name, "Proxy-")
}

// isClaim treats an underscore as a hyphen, too.
func isClaim(name string) bool {
	name = canonical(name)
	return claims[name] || strings.HasPrefix(name, "X-Forwarded-")
}

func canonical(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// checkMethod refuses invalid methods and those that are never granted.
func checkMethod(method string) error {
	switch {
	case !isToken(method) || len(method) > maxMethod:
		return fmt.Errorf("is no method: use one such as GET, of at most %d bytes", maxMethod)
	case strings.EqualFold(method, http.MethodConnect) || strings.EqualFold(method, http.MethodTrace):
		return errors.New("is never sent: use another method")
	case method != strings.ToUpper(method): // RFC 9110 §9.1: "get" is another method than "GET"
		return fmt.Errorf("has small letters: use %s", strings.ToUpper(method))
	}
	return nil
}

// headers checks a guest's headers and copies them. used is the number of bytes already counted.
func headers(given map[string][]string, used, most int) (http.Header, error) {
	tooBig := fmt.Errorf("%w: method, URL and headers have more than %d bytes", service.ErrTooBig, most)
	if used+len(given) > most {
		return nil, tooBig // before they are sorted
	}
	h := make(http.Header, len(given)+1)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !isToken(name) {
			return nil, fmt.Errorf("%w: header %q: its name is no token of RFC 9110 §5.6.2", service.ErrInvalid, name)
		}
		if isOurs(name) {
			return nil, fmt.Errorf("%w: header %q: the host sets it, or it is not sent", service.ErrInvalid, name)
		}
		if isClaim(name) {
			return nil, fmt.Errorf("%w: header %q: is not sent, for servers take it for another method or origin than the request's: leave it out", service.ErrInvalid, name)
		}
		for _, value := range given[name] {
			if used += len(name) + len(": \r\n") + len(value); used > most {
				return nil, tooBig
			}
			if !isFieldValue(value) {
				return nil, fmt.Errorf("%w: header %q: its value has a control character", service.ErrInvalid, name)
			}
			h.Add(name, strings.Trim(value, " \t")) // RFC 9110 §5.5: it is not part of the value
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", userAgent)
	}
	return h, nil
}

// answered removes the headers about the connection from an answer.
func answered(h http.Header) map[string][]string {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return name != "Content-Length" && isOurs(name) })
	return h
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if ('0' > c || c > '9') && ('A' > c || c > 'Z') && ('a' > c || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s may be the value of a header (RFC 9110 §5.5).
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
