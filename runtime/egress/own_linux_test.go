package egress

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/service"
)

// publicAddr is an address that any network on the internet may have.
const publicAddr = "11.22.33.44"

// TestOwnAddress has a host with a public address, in a network namespace of its own: it is refused unless it is granted.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	const child = "QUERN_TEST_OWN_ADDRESS"
	if os.Getenv(child) != "" {
		ownAddress(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwnAddress$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this user may not make namespaces")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOwnAddress") {
		t.Errorf("%v\n%s", err, out)
	}
}

// ownAddress is the test within the namespace, whose only interface has no address yet.
func ownAddress(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := loopback.SetInet4Addr(netip.MustParseAddr(publicAddr).AsSlice()); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, loopback); err != nil {
		t.Fatal(err)
	}
	loopback.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback); err != nil {
		t.Fatal(err)
	}
	// An interface's second address is one that routes begin at the first for, as all others of a loopback network.
	const second, nonlocal = "11.22.33.50", "/proc/sys/net/ipv4/ip_nonlocal_bind" // the namespace's own
	for _, tt := range []struct{ nonlocal, addr, want string }{
		{"0", publicAddr, "of this host"},
		{"0", second, "of this host"},
		{"0", "12.22.33.44", ""},
		{"0", "2600::1", ""},
		{"1", publicAddr, "of this host"},
		{"1", "12.22.33.44", ""},
		{"1", "2600::1", ""},
	} {
		if err := os.WriteFile(nonlocal, []byte(tt.nonlocal), 0); err != nil {
			t.Fatal(err)
		}
		if got := own(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("with ip_nonlocal_bind=%s %s is %q, want %q", tt.nonlocal, tt.addr, got, tt.want)
		}
	}
	listener, err := net.Listen("tcp", publicAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(echo)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	url := "http://" + listener.Addr().String()

	r, err := get(t, setup(t, Config{}).For("a", grants(t, url), nil), url)
	if fails(t, r, err, service.ErrDenied); err == nil || !strings.Contains(err.Error(), publicAddr+" is of this host: ") {
		t.Errorf("the error is %v", err)
	}
	r, err = get(t, setup(t, Config{Networks: []netip.Prefix{netip.MustParsePrefix(publicAddr + "/32")}}).For("a", grants(t, url), nil), url)
	succeeds(t, r, err, 200, string(r.Body))
}
