package egress

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/service"
)

// TestTold has failures whose text names the networks of the host. Tenants learn what they wrote themselves, and the cause.
func TestTold(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	port := func(address string) string { return address[strings.LastIndex(address, ":"):] }
	away := port(l.Addr().String())
	resets, _ := raw(t, func(_ context.Context, c net.Conn) {
		if request(c) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	})
	mute := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:1") // where nobody listens
	}}
	secure := serve(t, echo, http2)
	proxy := &url.URL{Scheme: "http", Host: "127.0.0.1" + away}
	for name, test := range map[string]struct {
		cfg               Config
		url, whole, tells string
	}{
		"Private": {
			Config{resolver: always("10.0.0.5")},
			"http://name.test",
			"10.0.0.5 is private (RFC 1918): the operator can allow the address with --allow-networks 10.0.0.5/32",
			"denied: the name leads to an address that is not open: the host's log names it, and what the operator can add",
		},
		"Mapped": {
			Config{resolver: always("64:ff9b::a00:5")}, "http://name.test", "--allow-networks 64:ff9b::a00:5/128", "denied: the name leads to",
		},
		"Written":  {Config{}, "http://10.0.0.5", "--allow-networks 10.0.0.5/32", "--allow-networks 10.0.0.5/32"},
		"Loopback": {Config{resolver: always("127.0.0.1")}, "http://localhost", "--allow-networks 127.0.0.1/32", "--allow-networks 127.0.0.1/32"},
		"NoName":   {Config{resolver: always()}, "http://name.test", "lookup name.test", "unavailable: no such host"},
		"NoServer": {Config{resolver: mute}, "http://name.test", "connection refused", "unavailable: the name cannot be resolved"},
		"Refused": {
			Config{resolver: always("127.0.0.1"), Networks: loopback},
			"http://name.test" + away, "127.0.0.1" + away,
			"unavailable: connect: connection refused",
		},
		"Reset": {
			Config{resolver: always("127.0.0.1"), Networks: loopback},
			"http://name.test" + port(resets), "->127.0.0.1" + port(resets),
			"unavailable: read: connection reset by peer",
		},
		"Untrusted": {
			Config{resolver: always("127.0.0.1"), Networks: loopback},
			"https://name.test" + port(secure.URL), "x509",
			"unavailable: the certificate of the server is ",
		},
		"Proxy": {
			Config{resolver: always("192.0.2.1"), Networks: nil, Proxy: proxy},
			"http://1.1.1.1", "127.0.0.1" + away,
			"unavailable: the operator's proxy cannot be reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := get(t, setup(t, test.cfg).For("a", grants(t, test.url), nil), test.url)
			if err == nil || !strings.Contains(err.Error(), test.whole) {
				t.Fatalf("error %v, want %s", err, test.whole)
			}
			told := service.Told(err)
			if want := "GET " + test.url + ": " + test.tells; !strings.Contains(told, test.tells) || !strings.HasPrefix(told, "GET "+test.url+": ") {
				t.Errorf("tenants are told %q, want %q", told, want)
			}
			if rest := strings.ReplaceAll(told, test.url, ""); name != "Written" && name != "Loopback" && strings.ContainsFunc(rest, func(r rune) bool { return '0' <= r && r <= '9' }) {
				t.Errorf("tenants are told an address: %s", told)
			}
		})
	}
}
