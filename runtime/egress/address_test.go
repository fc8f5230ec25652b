package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/service"
)

func TestCheckAddr(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		// Public, next to what is not.
		"1.1.1.1": "", "9.255.255.255": "", "11.0.0.0": "", "100.63.255.255": "", "100.128.0.0": "", "126.255.255.255": "", "128.0.0.0": "",
		"169.253.255.255": "", "169.255.0.0": "", "172.15.255.255": "", "172.32.0.0": "", "192.0.1.0": "", "192.0.3.0": "", "192.167.255.255": "", "192.169.0.0": "",
		"198.17.255.255": "", "198.20.0.0": "", "198.51.99.255": "", "198.51.101.0": "", "203.0.112.255": "", "203.0.114.0": "", "223.255.255.255": "",
		"168.63.129.15": "", "168.63.129.17": "", "192.88.98.255": "", "192.88.100.0": "",
		"2606:4700::1111": "", "2001:4860:4860::8888": "", "2001:200::1": "", "2001:db7::1": "", "2001:db9::1": "", "2003::1": "", "2a00::1": "", "3ffe::1": "", "3fff:1000::1": "",
		"2606:4700::5efe:1": "", "2606:4700::100:5efe:101:101": "",

		"0.0.0.0": "this network", "0.255.255.255": "this network", "10.0.0.0": "private", "10.255.255.255": "private", "100.64.0.0": "shared", "100.127.255.255": "shared", "100.100.100.200": "shared",
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "169.254.0.0": "link-local", "169.254.169.254": "link-local", "172.16.0.0": "private", "172.31.255.255": "private",
		"168.63.129.16": "Azure",
		"192.0.0.0":     "of protocols", "192.0.0.192": "of protocols", "192.0.2.1": "documentation", "192.88.99.1": "6to4", "192.168.0.0": "private", "192.168.255.255": "private",
		"198.18.0.0": "benchmarks", "198.19.255.255": "benchmarks", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "224.0.0.0": "multicast", "239.255.255.255": "multicast",
		"240.0.0.0": "reserved", "255.255.255.254": "reserved", "255.255.255.255": "broadcast",

		"::": "unspecified", "::1": "loopback", "::2": "IPv4-compatible", "::127.0.0.1": "IPv4-compatible", "::8.8.8.8": "IPv4-compatible", "::ffff:127.0.0.1": "IPv4-mapped", "::ffff:8.8.8.8": "IPv4-mapped",
		"::ffff:0:127.0.0.1": "IPv4-translated", "::1:0:0:0": "not given out", "64:ff9b::127.0.0.1": "NAT64", "64:ff9b::8.8.8.8": "NAT64", "64:ff9b::1:0:0": "not given out",
		"64:ff9b:1::10.0.0.1": "local NAT64", "64:ff9b:1:ffff::": "local NAT64", "100::1": "discard-only", "100:0:0:1::1": "not given out",
		"2001::1": "Teredo", "2001:0:ffff::": "Teredo", "2001:2::1": "benchmarks", "2001:10::1": "of protocols", "2001:1ff::1": "of protocols", "2001:db8::1": "documentation",
		"2002::1": "6to4", "2002:7f00:1::1": "6to4", "2002:808:808::1": "6to4", "3fff::1": "documentation", "3fff:fff::1": "documentation",
		"4000::1": "not given out", "5f00::1": "not given out", "fc00::1": "unique local", "fdff::1": "unique local", "fd00:ec2::254": "unique local",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf::1": "link-local", "fec0::1": "site-local", "feff::1": "site-local", "ff02::1": "multicast", "ff0e::1": "multicast", "fe00::1": "not given out",
		"2606:4700::5efe:127.0.0.1": "ISATAP", "2606:4700::200:5efe:10.0.0.1": "ISATAP", "2606:4700::200:5efe:8.8.8.8": "ISATAP", "fe80::5efe:1.1.1.1": "link-local",
	} {
		err := CheckAddr(netip.MustParseAddr(addr), nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", addr, err)
		case want != "" && (!errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q", addr, err, want)
		}
	}
	if err := CheckAddr(netip.Addr{}, []netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")}); !errors.Is(err, service.ErrDenied) {
		t.Errorf("no address: %v", err)
	}
}

// TestCheckAddrGranted checks what a network opens: itself, and nothing that another form of address carries.
func TestCheckAddrGranted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr, networks string
		allowed        bool
	}{
		{"10.1.2.3", "10.1.0.0/16", true},
		{"10.2.2.3", "10.1.0.0/16", false},
		{"10.1.2.3", "10.1.9.9/16", true}, // bits that do not count
		{"127.0.0.1", "127.0.0.1/32", true},
		{"127.0.0.2", "127.0.0.1/32", false},
		{"::1", "::1/128", true},
		{"::1", "127.0.0.0/8", false},
		{"fe80::1%eth0", "fe80::/10", true},
		{"fd00::1", "fd00::/64", true},
		{"::ffff:127.0.0.1", "127.0.0.0/8", false},
		{"::ffff:127.0.0.1", "::ffff:0:0/96", false},
		{"::ffff:127.0.0.1", "::ffff:0:0/96 127.0.0.0/8", true},
		{"::ffff:8.8.8.8", "::ffff:0:0/96", true},
		{"::127.0.0.1", "::/96", false},
		{"64:ff9b::8.8.8.8", "64:ff9b::/96", true},
		{"64:ff9b::10.0.0.1", "64:ff9b::/96", false},
		{"64:ff9b::10.0.0.1", "10.0.0.0/8", false},
		{"64:ff9b::10.0.0.1", "64:ff9b::/96 10.0.0.0/8", true},
		{"64:ff9b:1::169.254.169.254", "64:ff9b:1::/96", false},
		{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/96", true},
		{"2002:7f00:1::1", "2002::/16", false},
		{"2002:808:808::1", "2002::/16", true},
		{"2002:7f00:1::1", "2002::/16 127.0.0.0/8", true},
		{"2001:0:808:808::f7f7:f7f7", "2001::/32", true},  // 8.8.8.8 both
		{"2001:0:a00:1::f7f7:f7f7", "2001::/32", false},   // by the server 10.0.0.1
		{"2001:0:808:808::80ff:fffe", "2001::/32", false}, // to the client 127.0.0.1
		{"2606:4700::5efe:10.0.0.1", "2606:4700::/32", false},
		{"2606:4700::5efe:10.0.0.1", "2606:4700::/32 10.0.0.0/8", true},
	} {
		var networks []netip.Prefix
		for n := range strings.FieldsSeq(c.networks) {
			networks = append(networks, netip.MustParsePrefix(n))
		}
		if err := CheckAddr(netip.MustParseAddr(c.addr), networks); (err == nil) != c.allowed {
			t.Errorf("%s with %s: %v, want %v", c.addr, c.networks, err, c.allowed)
		}
	}
}

// TestCheckAddrOpensNothing: no socket is opened for an address that is granted or refused anyway. It would take memory.
func TestCheckAddrOpensNothing(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	granted := []netip.Prefix{netip.MustParsePrefix("1.1.1.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
	for addr, most := range map[string]float64{"1.1.1.1": 0, "10.0.0.1": 0, "192.168.0.1": 1} { // 1 is the error
		a := netip.MustParseAddr(addr)
		if allocs := testing.AllocsPerRun(10, func() { _ = CheckAddr(a, granted) }); allocs > most {
			t.Errorf("%s takes %v allocations", addr, allocs)
		}
	}
}

// TestCheckAddrAgrees compares with what the standard library knows of addresses.
func TestCheckAddrAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
		a := netip.AddrFrom16([16]byte(b))
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 0:
			a = netip.AddrFrom4([4]byte(b[:4]))
		case 1:
			a = netip.AddrFrom16([16]byte(append(append([]byte{}, make([]byte, 10)...), append([]byte{0xff, 0xff}, b[:4]...)...)))
		}
		if inner := a.Unmap(); CheckAddr(a, nil) == nil &&
			(!inner.IsGlobalUnicast() || inner.IsPrivate() || inner.IsLoopback() || inner.IsLinkLocalUnicast() || inner.IsMulticast() || inner.IsUnspecified() || a.Is4In6()) {
			t.Fatalf("%s passes", a)
		}
	})
}
