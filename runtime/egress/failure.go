package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/quern-project/quern/runtime/service"
)

// failure returns the error of a request that has no answer because of err. The text for tenants names no name server,
// no proxy, and no address except those that the tenant wrote and loopback addresses.
func failure(request string, t target, err error) error {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		whole := fmt.Errorf("%s: %w", request, refused)
		if t.addr.IsValid() || refused.addr.IsLoopback() {
			return whole
		}
		return &service.Confidential{Err: whole, Told: fmt.Sprintf(
			"%s: %v: the name leads to an address that is not open: the host's log names it, and what the operator can add",
			request, service.ErrDenied)}
	case errors.Is(err, service.ErrTooBig):
		return fmt.Errorf("%s: %w", request, err)
	}
	return &service.Confidential{
		Err:  fmt.Errorf("%s: %w: %s", request, service.ErrUnavailable, printable(err.Error())),
		Told: fmt.Sprintf("%s: %v: %s", request, service.ErrUnavailable, printable(reason(err))),
	}
}

// reason returns the text that tenants get for an error of the transport.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "proxyconnect" {
		return "the operator's proxy cannot be reached"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "no such host"
		}
		return "the name cannot be resolved"
	}
	// The error's text lists the other names that the certificate is for.
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		if errors.As(certificate.Err, &x509.HostnameError{}) {
			return "the certificate of the server is for other names"
		}
		return "the certificate of the server is not valid, or not trusted"
	}
	for errors.As(err, &op) { // its text has the addresses of both ends
		err = op.Err
	}
	return err.Error()
}

// printable replaces unprintable characters in the text of an error and cuts a long text, because the text can contain
// data that a server sent.
func printable(s string) string {
	const most = 20 << 10 // bytes, far more than is shown; the runtime shortens the text after it has replaced secrets
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), most)], "?")
}
