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

// maxMethod is the maximum length of a method, in bytes.
const maxMethod = 32

// ours are the headers that a guest must not set, in canonical form. They frame the message (RFC 9112 §6), belong to
// one connection (RFC 9110 §7.6.1), say where the message goes, or make the client wait for the server (RFC 9110
// §10.1.1). Proxy is one of them because CGI turns it into the variable HTTP_PROXY.
var ours = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Http2-Settings": true, "Keep-Alive": true,
	"Proxy": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// claims are the headers, in canonical form, that make a server see a method, origin or destination other than the
// granted one (RFC 7239). Answers can have these headers: they do no harm there.
var claims = map[string]bool{
	"Forwarded": true, "X-Http-Method": true, "X-Http-Method-Override": true, "X-Method-Override": true,
}

func isOurs(canonical string) bool { return ours[canonical] || strings.HasPrefix(canonical, "Proxy-") }

// canonical returns a header's name in canonical form. It treats an underscore as a hyphen, as servers do that turn
// headers into variables.
func canonical(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// CheckMethod refuses invalid methods and methods that are never granted. Its error continues a text that ends in the
// method, and ends in ": " and the remedy.
func CheckMethod(method string) error {
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

// headers checks a guest's headers and copies them. limit is the maximum size of method, URL and headers in bytes. used
// is the size of method and URL.
func headers(given map[string][]string, used, limit int) (http.Header, error) {
	tooBig := fmt.Errorf("%w: method, URL and headers have more than %d bytes", service.ErrTooBig, limit)
	if used+len(given) > limit {
		return nil, tooBig // before the headers are sorted
	}
	h := make(http.Header, len(given)+1)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := CheckHeader(name, ""); err != nil {
			return nil, fmt.Errorf("%w: %w", service.ErrInvalid, err)
		}
		switch seen := canonical(name); {
		case isOurs(seen):
			return nil, fmt.Errorf("%w: header %q: the host sets it, or it is not sent", service.ErrInvalid, name)
		case claims[seen] || strings.HasPrefix(seen, "X-Forwarded-"):
			return nil, fmt.Errorf("%w: header %q: is not sent, for servers take it for another method or origin than the request's: leave it out", service.ErrInvalid, name)
		}
		for _, value := range given[name] {
			if used += len(name) + len(": \r\n") + len(value); used > limit {
				return nil, tooBig
			}
			if err := CheckHeader(name, value); err != nil {
				return nil, fmt.Errorf("%w: %w", service.ErrInvalid, err)
			}
			h.Add(name, strings.Trim(value, " \t")) // white space around it is not part of the value
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", "Quern")
	}
	return h, nil
}

// CheckHeader refuses a header that no request and no answer can have.
func CheckHeader(name, value string) error {
	if !isToken(name) {
		return fmt.Errorf("header %q: its name is no token of RFC 9110 §5.6.2", name)
	}
	// RFC 9110 §5.5
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Errorf("header %q: its value has a control character", name)
	}
	return nil
}

// addTrace adds the trace of the call, unless the guest has set a traceparent. The trace does not count against the
// limit.
func addTrace(h http.Header, trace map[string]string) {
	const parent, state = "traceparent", "tracestate"
	if trace[parent] == "" || h.Get(parent) != "" {
		return
	}
	h.Set(parent, trace[parent])
	h.Del(state) // a tracestate of the guest would belong to another traceparent
	if trace[state] != "" {
		h.Set(state, trace[state])
	}
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && strings.Trim(s, letters+"0123456789!#$%&'*+-.^_`|~") == ""
}
