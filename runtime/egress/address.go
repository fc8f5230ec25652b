package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/quern-project/quern/runtime/service"
)

// reserved are the networks that are not public, from IANA's registries of special-purpose addresses (RFC 6890). The
// first network that contains an address counts.
var reserved = []struct {
	network netip.Prefix
	what    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network (RFC 791 §3.2)"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private (RFC 1918)"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers (RFC 6598)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122 §3.2.1.3)"},
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure's own services for a virtual machine (its documentation)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private (RFC 1918)"},
	{netip.MustParsePrefix("192.0.0.0/24"), "of protocols (RFC 6890 §2.1)"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation (RFC 5737)"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays (RFC 7526)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private (RFC 1918)"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks (RFC 2544)"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation (RFC 5737)"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation (RFC 5737)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast (RFC 919)"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved (RFC 1112 §4)"},

	{netip.MustParsePrefix("::/128"), "unspecified (RFC 4291 §2.5.2)"},
	{netip.MustParsePrefix("::1/128"), "loopback (RFC 4291 §2.5.3)"},
	{compatible, "IPv4-compatible (RFC 4291 §2.5.5.1)"},
	{mapped, "IPv4-mapped (RFC 4291 §2.5.5.2)"},
	{translated, "IPv4-translated (RFC 2765 §2.1)"},
	{nat64, "NAT64 (RFC 6052 §2.1)"},
	{localNAT64, "local NAT64 (RFC 8215)"},
	{netip.MustParsePrefix("100::/64"), "discard-only (RFC 6666)"},
	{teredo, "Teredo (RFC 4380)"},
	{netip.MustParsePrefix("2001:2::/48"), "for benchmarks (RFC 5180)"},
	{netip.MustParsePrefix("2001::/23"), "of protocols (RFC 2928)"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation (RFC 3849)"},
	{sixToFour, "6to4 (RFC 3056)"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation (RFC 9637)"},
	{netip.MustParsePrefix("fc00::/7"), "unique local (RFC 4193)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291 §2.5.6)"},
	{netip.MustParsePrefix("fec0::/10"), "site-local (RFC 3879)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291 §2.7)"},
}

// Networks of IPv6 addresses that contain an IPv4 address.
var (
	compatible = netip.MustParsePrefix("::/96")
	mapped     = netip.MustParsePrefix("::ffff:0:0/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	teredo     = netip.MustParsePrefix("2001::/32")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// unicast6 is the part of IPv6 allocated for public addresses (RFC 4291 §2.4 and IANA's registry of the address space).
var unicast6 = netip.MustParsePrefix("2000::/3")

// classify returns the reason why an address must not be reached: it is not public, or belongs to this host. For any
// other address it returns "". The address must have no zone.
func classify(a netip.Addr) string {
	for _, r := range reserved {
		if r.network.Contains(a) {
			return r.what
		}
	}
	switch {
	case a.Is6() && isISATAP(a):
		return "ISATAP (RFC 5214)"
	case a.Is6() && !unicast6.Contains(a):
		return "not given out (RFC 4291 §2.4)"
	}
	return own(a)
}

// isISATAP reports whether the interface identifier is an ISATAP one (RFC 5214 §6.1). Addresses of any network can have
// an ISATAP identifier.
func isISATAP(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// own returns "of this host" for an address of this host, else "". A service on a public address of the host is often
// meant only for the host's local networks.
//
// own tries to bind a socket to the address: normally that works only for an address of the host. The list of
// interfaces would also show the host's addresses, but reading the list needs a netlink socket, which a confined host
// can lack. Some systems let sockets bind to any address (ip_nonlocal_bind). There own also looks at the route: packets
// to an address of the host have that address as their source, unless it is an interface's second address.
func own(a netip.Addr) string {
	foreign := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	if a.Is6() {
		foreign = netip.MustParseAddr("2001:db8::1")
	}
	if binds(a) && (!binds(foreign) || routes(a)) {
		return "of this host"
	}
	return ""
}

// binds reports whether a socket can be bound to an address, on any free port.
func binds(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// routes reports whether packets to an address would have that address as their source. It sends nothing.
func routes(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == a
}

// carried returns the IPv4 addresses inside an IPv6 address. A gateway can forward packets to them.
func carried(a netip.Addr) []netip.Addr {
	if !a.Is6() || a == netip.IPv6Unspecified() || a == netip.IPv6Loopback() {
		return nil
	}
	b := a.As16()
	at := func(i int, mask byte) netip.Addr {
		return netip.AddrFrom4([4]byte{b[i] ^ mask, b[i+1] ^ mask, b[i+2] ^ mask, b[i+3] ^ mask})
	}
	switch {
	case sixToFour.Contains(a):
		return []netip.Addr{at(2, 0)} // RFC 3056 §2
	case teredo.Contains(a):
		return []netip.Addr{at(4, 0), at(12, 0xff)} // server and client, RFC 4380 §4
	case isISATAP(a):
		return []netip.Addr{at(12, 0)}
	}
	for _, form := range []netip.Prefix{compatible, mapped, translated, nat64, localNAT64} {
		if form.Contains(a) {
			return []netip.Addr{at(12, 0)}
		}
	}
	return nil
}

// refusal is the error for an address that is not allowed. Its text is built only when Error is called.
type refusal struct {
	addr netip.Addr
	what string
}

func (r *refusal) Error() string {
	return (&service.Denial{
		By: service.ByNetwork, What: fmt.Sprintf("%s is %s", r.addr, r.what),
		Add: netip.PrefixFrom(r.addr, r.addr.BitLen()).String(),
	}).Error()
}

func (r *refusal) Unwrap() error { return service.ErrDenied }

// CheckAddr refuses an address that is not public or belongs to this host, unless it is in networks. It also checks the
// IPv4 addresses inside the address.
func CheckAddr(a netip.Addr, networks []netip.Prefix) error {
	a = a.WithZone("")
	if !a.IsValid() {
		return &refusal{a, "no address"}
	}
	if !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
		if what := classify(a); what != "" {
			return &refusal{a, what}
		}
	}
	for _, inner := range carried(a) {
		if err := CheckAddr(inner, networks); err != nil {
			return err
		}
	}
	return nil
}
