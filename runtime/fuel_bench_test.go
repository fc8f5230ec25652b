package runtime

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasm"
)

const (
	fuelRounds = 7                      // of which the median is taken
	fuelWork   = 100 * time.Millisecond // that a guest is given at least, each time
)

// BenchmarkFuel compares ways to stop a guest by what they cost one that is not stopped: none at all, wazero's
// own, and fuel. All run on wazero alone, in turns, each for at least a tenth of a second of the processor's time.
// Ratios are of the times in one turn; they and the times are medians of all turns.
//
//	plain-ms     of one repeat of the guest's work, without any way to stop it
//	spread-%     between the quartiles of those times
//	closing-x    how many times that it takes with wazero's WithCloseOnContextDone
//	exact-x      and if each instruction is counted
//	fuel-x       and with fuel
//	fuel-best-x  the same of the shortest times, which other work on the machine disturbs least
//	±fuel-%      between the quartiles of fuel-x: smaller differences are noise
//	counted-%    what fuel counts, of all instructions that are executed
//
// QUERN_FUEL lists values of wasm.Options.Every, such as "64 256": each then has metrics of its own, such as
// fuel-64-x. Default: what is the default there.
func BenchmarkFuel(b *testing.B) {
	options, err := fuelOptions(os.Getenv("QUERN_FUEL"))
	if err != nil {
		b.Fatalf("QUERN_FUEL: %v", err)
	}
	for _, guest := range fuelGuests {
		b.Run(guest.name, func(b *testing.B) {
			binary := guest.build(b)
			ways := fuelWays(b, binary, options)
			for b.Loop() {
				for range fuelRounds {
					for _, way := range ways {
						way.measure(b)
					}
				}
			}
			reportFuel(b, ways)
		})
	}
}

var fuelGuests = []struct {
	name  string
	build func(testing.TB) []byte
}{
	{"xorshift", func(t testing.TB) []byte { return runtimetest.BuildC(t, fuelSource(t, "xorshift.c"), "-O1") }},
	// Or clang makes a loop of one of the two calls.
	{"fib", func(t testing.TB) []byte {
		return runtimetest.BuildC(t, fuelSource(t, "fib.c"), "-fno-optimize-sibling-calls")
	}},
	{"sha256", func(t testing.TB) []byte { return runtimetest.BuildC(t, fuelSource(t, "sha256.c")) }},
	{"json", func(t testing.TB) []byte { return runtimetest.BuildGo(t, fuelSource(t, "json.go")) }},
	{"resize", func(t testing.TB) []byte { return runtimetest.BuildGo(t, fuelSource(t, "resize.go")) }},
}

func fuelSource(t testing.TB, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "fuel", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// fuelOptions reads a list such as "64 256".
func fuelOptions(list string) ([]wasm.Options, error) {
	if list == "" {
		return []wasm.Options{{}}, nil
	}
	var all []wasm.Options
	for one := range strings.FieldsSeq(list) {
		every, err := strconv.Atoi(one)
		if err != nil {
			return nil, err
		}
		all = append(all, wasm.Options{Every: every})
	}
	return all, nil
}

// fuelWay is a guest that was compiled in one of the ways.
type fuelWay struct {
	name     string
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	repeats  int
	times    []time.Duration // of one repeat
	burned   float64         // of one repeat
}

// fuelWays compiles a guest in all ways: plain, closing, exact, and with each of the options.
func fuelWays(b *testing.B, binary []byte, options []wasm.Options) []*fuelWay {
	plain := fuelRuntime(b, wazero.NewRuntimeConfig())
	closing := fuelRuntime(b, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
	ways := []*fuelWay{
		newFuelWay(b, "plain", plain, binary),
		newFuelWay(b, "closing", closing, binary),
		newFuelWay(b, "exact", plain, fuelled(b, binary, wasm.Options{Every: 1})),
	}
	for _, o := range options {
		name := "fuel"
		if len(options) > 1 {
			name = fmt.Sprintf("fuel-%d", o.Every)
		}
		ways = append(ways, newFuelWay(b, name, plain, fuelled(b, binary, o)))
	}
	for _, way := range ways {
		way.calibrate(b, ways[0].repeats)
	}
	return ways
}

func fuelled(b *testing.B, binary []byte, o wasm.Options) []byte {
	rewritten, err := wasm.Rewrite(binary, o)
	if err != nil {
		b.Fatalf("Rewrite: %v", err)
	}
	return rewritten.Binary
}

// fuelRuntime is wazero with its own WASI, and a tick that does nothing but go on.
func fuelRuntime(b *testing.B, config wazero.RuntimeConfig) wazero.Runtime {
	rt := wazero.NewRuntimeWithConfig(b.Context(), config)
	b.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	if _, err := wasi_snapshot_preview1.Instantiate(b.Context(), rt); err != nil {
		b.Fatal(err)
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	count := func(ctx context.Context, _ api.Module, stack []uint64) {
		*ctx.Value(burnedKey{}).(*int64) += quantum - int64(int32(uint32(stack[0])))
		stack[0] = quantum
	}
	if _, err := rt.NewHostModuleBuilder(wasm.HostModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(count), i32, i32).Export(wasm.TickName).Instantiate(b.Context()); err != nil {
		b.Fatal(err)
	}
	return rt
}

// burnedKey is the key of the fuel burned in a call, in its context.
type burnedKey struct{}

func newFuelWay(b *testing.B, name string, rt wazero.Runtime, binary []byte) *fuelWay {
	compiled, err := rt.CompileModule(b.Context(), binary)
	if err != nil {
		b.Fatalf("CompileModule (%s): %v", name, err)
	}
	return &fuelWay{name: name, runtime: rt, compiled: compiled, repeats: 1}
}

// calibrate finds how many repeats take long enough to be measured. Ways that take about the same time get the
// same number, those that take much longer fewer.
func (w *fuelWay) calibrate(b *testing.B, most int) {
	for ; most == 1 || w.repeats < most; w.repeats *= 2 {
		if took, _ := w.run(b, w.repeats); took >= fuelWork {
			break
		}
	}
	// The fuel of one repeat is that of many without that of a start.
	_, one := w.run(b, 1)
	_, some := w.run(b, 4)
	w.burned = float64(some-one) / 3
}

// run returns how long the guest took, from its start, and the fuel that it burned.
func (w *fuelWay) run(b *testing.B, repeats int) (time.Duration, int64) {
	burned := int64(-quantum) // what is not yet burned of the last quantum
	ctx := context.WithValue(b.Context(), burnedKey{}, &burned)
	var stderr bytes.Buffer
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithStderr(&stderr).
		WithStdin(strings.NewReader(strconv.Itoa(repeats)))
	instance, err := w.runtime.InstantiateModule(ctx, w.compiled, config)
	if err != nil {
		b.Fatalf("InstantiateModule (%s): %v", w.name, err)
	}
	defer instance.Close(ctx)
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	began, clock := time.Now(), threadClock()
	_, err = instance.ExportedFunction(startExport).Call(ctx)
	took := time.Since(began)
	if clock > 0 { // what else the machine does is left out
		took = threadClock() - clock
	}
	if exit, ok := err.(*sys.ExitError); err != nil && (!ok || exit.ExitCode() != 0) { //nolint:errorlint // as wazero has it: Is takes any ExitError
		b.Fatalf("%s: %v\n%s", w.name, err, &stderr)
	}
	if counter := instance.ExportedGlobal(wasm.FuelExport); counter != nil {
		burned += quantum - int64(int32(uint32(counter.Get())))
	}
	return took, burned
}

func (w *fuelWay) measure(b *testing.B) {
	took, _ := w.run(b, w.repeats)
	w.times = append(w.times, took/time.Duration(w.repeats))
}

// quartiles are the lower one, the median and the upper one.
func quartiles[T cmp.Ordered](values []T) (lower, median, upper T) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return sorted[n/4], sorted[n/2], sorted[n-1-n/4]
}

// over are the ratios of the times to another's, turn by turn.
func (w *fuelWay) over(other *fuelWay) []float64 {
	ratios := make([]float64, len(w.times))
	for i, t := range w.times {
		ratios[i] = float64(t) / float64(other.times[i])
	}
	return ratios
}

func reportFuel(b *testing.B, ways []*fuelWay) {
	plain, exact := ways[0], ways[2]
	lower, median, upper := quartiles(plain.times)
	b.ReportMetric(0, "ns/op") // of an iteration, which is all the rounds
	b.ReportMetric(float64(median)/1e6, "plain-ms")
	b.ReportMetric(100*float64(upper-lower)/float64(median), "spread-%")
	for _, way := range ways[1:] {
		lower, median, upper := quartiles(way.over(plain))
		b.ReportMetric(median, way.name+"-x")
		if strings.HasPrefix(way.name, "fuel") {
			b.ReportMetric(float64(slices.Min(way.times))/float64(slices.Min(plain.times)), way.name+"-best-x")
			b.ReportMetric(100*(upper-lower), "±"+way.name+"-%")
			b.ReportMetric(100*way.burned/exact.burned, strings.Replace(way.name, "fuel", "counted", 1)+"-%")
		}
	}
}
