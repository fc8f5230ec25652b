package dev

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// The URL is the same at each start, with a port of one's own, and no other user can read it.
func TestDevPassword(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	env := func(name string) (string, bool) { return cache, name == "XDG_CACHE_HOME" }
	one, two := devPassword(env), devPassword(env)
	file := filepath.Join(cache, "quern", "dev-password")
	info, err := os.Stat(file)
	if err != nil || one != two || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %q, %v, %v", one, two, info, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if three := devPassword(env); three == one || len(three) != len(one) {
		t.Errorf("others may have read it: %q, then %q", one, three)
	}
}

// TestDevExpires: the keys of the embedded Redis expire with time, others stay.
func TestDevExpires(t *testing.T) {
	t.Parallel()
	embedded := miniredis.RunT(t)
	for _, name := range []string{"soon", "late", "never"} {
		if err := embedded.Set(name, "x"); err != nil {
			t.Fatal(err)
		}
	}
	embedded.SetTTL("soon", time.Millisecond)
	embedded.SetTTL("late", time.Hour)
	go expire(t.Context(), embedded)
	require.Eventually(t, func() bool { return !embedded.Exists("soon") }, 2*time.Minute, 5*time.Millisecond, "the key that expires soon is gone")
	if !embedded.Exists("late") || !embedded.Exists("never") {
		t.Errorf("keys: %v", embedded.Keys())
	}
}
