package snapshot

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// touchEnv makes this test binary a process that touches a memory at a place, and is ended by it: see TestGuards.
const touchEnv = "QUERN_TEST_TOUCH"

// TestGuards: an access as far below or above a memory as 32 bits lead is a fault, and no access of somebody's memory:
// of one that lies there as soon as it was reserved, say.
func TestGuards(t *testing.T) {
	t.Parallel()
	if place := os.Getenv(touchEnv); place != "" {
		space := reserved(t, 2*wasmPage)
		image := take(t, pattern(block))
		if err := space.Map(image); err != nil {
			t.Fatal(err)
		}
		offset := map[string]int{
			"below": -1, "far below": -4 << 30, "above": 2 * wasmPage, "far above": 2*wasmPage + 4<<30 - 1, "inside": wasmPage,
		}[place]
		*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(space.Bytes())), offset)) = 1
		return
	}
	for _, place := range []string{"below", "far below", "above", "far above", "inside"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuards$")
			cmd.Env = append(os.Environ(), touchEnv+"="+place)
			out, err := cmd.CombinedOutput()
			if faulted := bytes.Contains(out, []byte("unexpected fault address")); err == nil != (place == "inside") || faulted == (place == "inside") {
				t.Errorf("a write %s ended with %v:\n%s", place, err, out)
			}
		})
	}
}

// TestGuardsAreLeftOut: where the addresses are short, a space is made without guards.
func TestGuardsAreLeftOut(t *testing.T) {
	if os.Getenv(touchEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuardsAreLeftOut$")
		cmd.Env = append(os.Environ(), touchEnv+"=short")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("in a process with few addresses: %v\n%s", err, out)
		}
		return
	}
	if space := reserved(t, wasmPage); !space.Guarded() {
		t.Error("a space has no guards, though there are addresses")
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages := uint64(0)
	for _, digit := range strings.Fields(string(statm))[0] {
		pages = 10*pages + uint64(digit-'0')
	}
	limit := pages*pageSize + 4<<30
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	space := reserved(t, wasmPage)
	if space.Guarded() {
		t.Error("a space has guards, though there are no addresses for them")
	}
	space.Bytes()[wasmPage-1] = 1
}
