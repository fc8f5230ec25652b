//go:build linux || darwin

package runtime

import (
	"errors"
	"testing"
)

// TestMemoryCannotBeMapped: a mapping that fails is the host's fault, and the cause that is told, though
// wazero panics over it.
func TestMemoryCannotBeMapped(t *testing.T) {
	t.Parallel()
	const most = 1 << 62 // no system has as many addresses
	r := &run{memory: memory{limit: most, declared: most}}
	if got := r.memory.Allocate(0, most).Reallocate(page); got != nil || r.memory.err == nil || r.memory.refused {
		t.Fatalf("%d bytes, %+v, want an error and no refusal", len(got), r.memory)
	}
	if got := r.judge(errors.New("wazero panicked")); got.Kind != HostFault || !errors.Is(got.Err, r.memory.err) {
		t.Errorf("outcome = %+v, want a host fault for %v", got, r.memory.err)
	}
}
