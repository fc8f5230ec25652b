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

// userAgent is what a request has that brings none of its own.
const userAgent = "Quern"

// maxMethod is how long a method is at most, in bytes.
const maxMethod = 32

// ours are the headers that a guest may not write, in the form of a map of headers: they frame the message (RFC 9112
// §6), are about one connection (RFC 9110 §7.6.1), say where it leads, or wait for the server (RFC 9110 §10.1.1). Of a
// header "Proxy", CGI makes the variable HTTP_PROXY.
var ours = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Http2-Settings": true, "Keep-Alive": true,
	"Proxy": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// claims are the headers, in the same form, that make a server read another request than the one that is granted: another
// method, or one that comes from somewhere else or leads there (RFC 7239). They stay in answers, where they do nothing.
var claims = map[string]bool{
	"Forwarded": true, "X-Http-Method": true, "X-Http-Method-Override": true, "X-Method-Override": true,
}

// isOurs takes an underscore for a hyphen, as servers do that make variables of headers.
func isOurs(name string) bool {
	name = canonical(name)
	return ours[name] || strings.HasPrefix(name, "Proxy-")
}

// isClaim does the same.
func isClaim(name string) bool {
	name = canonical(name)
	return claims[name] || strings.HasPrefix(name, "X-Forwarded-")
}

func canonical(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// checkMethod refuses what is no method, or none that may be granted.
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

// headers checks a guest's headers and copies them. used is how many bytes count before them.
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

// answered removes from an answer's headers what was about the connection.
func answered(h http.Header) map[string][]string {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return name != "Content-Length" && isOurs(name) })
	return h
}

// isToken tells whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if ('0' > c || c > '9') && ('A' > c || c > 'Z') && ('a' > c || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isFieldValue tells whether s may be the value of a header (RFC 9110 §5.5).
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
