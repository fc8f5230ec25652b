package runtime

import (
	"fmt"
	"strings"
	"sync"

	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// Rung is the way in which a plugin's tasks come by pristine instances.
type Rung = snapshot.Rung

// The rungs, the best one first.
const (
	// RungScan sets an instance back after each task: the pages that were changed are found by an ioctl.
	RungScan = snapshot.Scan
	// RungPagemap does the same, and finds them by reading a file of the kernel's.
	RungPagemap = snapshot.Pagemap
	// RungCopy compares all memory.
	RungCopy = snapshot.Copy
	// RungNew makes an instance for each task.
	RungNew = snapshot.New
)

// ladder is what proved itself on this system, once for the process.
var ladder = sync.OnceValue(snapshot.Probe)

// climb finds the best rung that the system has, or proves the one that is forced.
func climb(verdicts []snapshot.Verdict, forced Rung) (best Rung, why string, err error) {
	var failed []string
	for _, v := range verdicts {
		switch {
		case forced != "" && v.Rung != forced:
		case v.Err == nil && forced != "":
			return v.Rung, "the host's setting", nil
		case v.Err == nil && failed == nil:
			return v.Rung, "the best there is", nil
		case v.Err == nil:
			return v.Rung, strings.Join(failed, "; "), nil
		default:
			failed = append(failed, fmt.Sprintf("%s: %v", v.Rung, v.Err))
		}
	}
	if failed == nil {
		return "", "", fmt.Errorf("rung %q does not exist", forced)
	}
	return "", "", fmt.Errorf("rung %q does not work here: %s", forced, strings.Join(failed, "; "))
}

// lasting says what of a module a reset does not reach, so that each of its tasks gets a new instance; "" if there
// is no such thing.
func lasting(o *wasm.Outline) string {
	if len(o.Lasting) > 0 {
		return "the module changes tables or segments: " + strings.Join(o.Lasting, ", ")
	}
	for _, kind := range o.Mutable {
		if !kind.Number() {
			return "the module has a mutable global of type " + kind.String()
		}
	}
	return ""
}
