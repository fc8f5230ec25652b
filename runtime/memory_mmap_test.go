//go:build linux || darwin

package runtime

import "testing"

// TestMemoryCannotBeMapped: a mapping that fails is no refusal that a guest is to blame for.
func TestMemoryCannotBeMapped(t *testing.T) {
	t.Parallel()
	const most = 1 << 62 // no system has as many addresses
	m := &memory{limit: most, declared: most}
	if got := m.Allocate(0, most).Reallocate(page); got != nil || m.err == nil || m.refused {
		t.Fatalf("%d bytes, %+v, want an error and no refusal", len(got), m)
	}
}
