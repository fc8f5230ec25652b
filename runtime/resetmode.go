package runtime

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// ResetMode is the way in which a plugin's tasks get pristine instances.
type ResetMode = snapshot.Mode

// The reset modes, the best one first.
const (
	// ResetScan resets an instance after each task, and finds the changed pages by an ioctl.
	ResetScan = snapshot.Scan
	// ResetPagemap resets an instance, and finds the changed pages by reading a file of the kernel.
	ResetPagemap = snapshot.Pagemap
	// ResetCopy resets an instance, and compares all memory.
	ResetCopy = snapshot.Copy
	// ResetNew makes an instance for each task.
	ResetNew = snapshot.New
)

// resetModes returns verdicts that say which reset modes work on this system. It probes the modes once in each process.
var resetModes = sync.OnceValue(snapshot.Probe)

// chooseResetMode returns the best reset mode that works on this system, and the reason for it. If forced is not "", it
// returns the forced mode, or an error if that mode does not work.
func chooseResetMode(verdicts []snapshot.Verdict, forced ResetMode) (best ResetMode, why string, err error) {
	var failed []string
	for _, v := range verdicts {
		switch {
		case forced != "" && v.Mode != forced:
		case v.Err != nil:
			failed = append(failed, fmt.Sprintf("%s: %v", v.Mode, v.Err))
		case forced != "":
			return v.Mode, "the host's setting", nil
		default:
			return v.Mode, cmp.Or(strings.Join(failed, "; "), "the best there is"), nil
		}
	}
	if failed == nil {
		return "", "", fmt.Errorf("reset mode %q does not exist", forced)
	}
	return "", "", fmt.Errorf("reset mode %q does not work here: %s", forced, strings.Join(failed, "; "))
}

// whyNew returns the reason why each task of a module needs a new instance: the changes of the module that a reset does
// not restore. It returns "" if a reset restores everything.
func whyNew(o *wasm.Outline) string {
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
