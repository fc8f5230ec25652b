package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

var (
	// full says that all is asked for, not the short version.
	full = os.Getenv("QUERN_CHAOS") == "full"
	// program is the built binary and cache what all hosts compile into; set by TestMain.
	program, cache string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run does not look for leaked goroutines: toxiproxy leaves two behind for each connection it breaks.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chaos-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	_ = flag.Set("test.parallel", "6")       // they wait more than they compute; -parallel still counts
	zerolog.SetGlobalLevel(zerolog.Disabled) // some of toxiproxy's toxics log to nobody's logger
	program, cache = filepath.Join(dir, "quern"), filepath.Join(dir, "compiled")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/quern")
	build.Dir = "../.." // the module of the program
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build quern: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// beside lets the short version run beside other tests; the long one wants the machine for itself.
func beside(t *testing.T) {
	t.Helper()
	if !full {
		t.Parallel()
	}
}

// newSeed is the seed that was given, or one of its own for each run.
func newSeed(t testing.TB) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("QUERN_CHAOS_SEED")
	if !ok {
		return rand.Uint64N(1_000_000)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("QUERN_CHAOS_SEED: %v", err)
	}
	return seed
}

// victims are the sorts of victims that were asked for, or all.
func victims(t testing.TB) []string {
	t.Helper()
	text, ok := os.LookupEnv("QUERN_CHAOS_FAULTS")
	if !ok {
		return allVictims
	}
	chosen := strings.Split(text, ",")
	for _, name := range chosen {
		if !slices.Contains(allVictims, name) {
			t.Fatalf("QUERN_CHAOS_FAULTS: %q is none of %s", name, strings.Join(allVictims, ", "))
		}
	}
	return chosen
}

// newRandom is one of the sources of a seed, which do not disturb each other.
func newRandom(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// between chooses a duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// sleep waits, and tells whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// until waits for a condition, looking every few milliseconds; false if ctx ended first.
func until(ctx context.Context, condition func() bool) bool {
	for !condition() {
		if !sleep(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return true
}
