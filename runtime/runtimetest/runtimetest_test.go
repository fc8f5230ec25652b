package runtimetest

import (
	"bytes"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestGuests(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) []byte{
		"Echo": Echo, "Exit": Exit, "Loop": Loop, "Sleep": Sleep, "MemoryBomb": MemoryBomb, "OutputFlood": OutputFlood,
		"LogFlood": LogFlood, "Trap": Trap, "Env": Env, "Clock": Clock, "Empty": Empty, "EmptyGo": EmptyGo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if guest := build(t); !bytes.HasPrefix(guest, Module()) {
				t.Errorf("%d bytes that are no module", len(guest))
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	one, two := Version(t, "1"), Version(t, "2")
	if bytes.Equal(one, two) || !bytes.Equal(one, Version(t, "1")) {
		t.Error("a version is not a module of its own")
	}
}

// TestOnce: a guest is built once, also if many ask for it at the same time.
func TestOnce(t *testing.T) {
	t.Parallel()
	var built builds
	var group sync.WaitGroup
	calls := make(chan struct{}, 100)
	for range 10 {
		group.Go(func() {
			got, err := built.get("key", func() ([]byte, error) {
				calls <- struct{}{}
				return []byte("guest"), nil
			})
			if string(got) != "guest" || err != nil {
				t.Errorf("get = %q, %v", got, err)
			}
		})
	}
	group.Wait()
	if len(calls) != 1 {
		t.Errorf("built %d times", len(calls))
	}
}
