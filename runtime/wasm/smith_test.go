package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"pgregory.net/rapid"
)

// smithBytes are choices for one program.
func smithBytes(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// smithWorlds are worlds with the functions that forged modules import: one where modules run as they are, by wazero's
// interpreter, and one where they run rewritten, by its compiler.
func smithWorlds(t testing.TB, o Options) [2]*smithWorld {
	t.Helper()
	plain, rewritten := worlds(t, api.CoreFeaturesV2, o)
	plain.runtime = wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { plain.runtime.Close(context.Background()) })
	both := [2]*smithWorld{{world: plain}, {world: rewritten}}
	for _, w := range both {
		builder := w.runtime.NewHostModuleBuilder("host")
		for i, f := range []api.GoFunc{w.a, w.b} {
			builder.NewFunctionBuilder().WithGoFunction(f, valueTypes(smithHost[i].Params), valueTypes(smithHost[i].Results)).Export(string(rune('a' + i)))
		}
		if _, err := builder.Instantiate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return both
}

func valueTypes(types []Type) (all []api.ValueType) {
	for _, t := range types {
		all = append(all, api.ValueType(t))
	}
	return all
}

// smithWorld notes the calls of its imports.
type smithWorld struct {
	*world
	calls []uint64
}

func (w *smithWorld) note(values ...uint64) {
	if len(w.calls) < 1000 {
		w.calls = append(w.calls, values...)
	}
}

func (w *smithWorld) a(_ context.Context, stack []uint64) {
	n := api.DecodeU32(stack[0])
	w.note(1, uint64(n))
	stack[0] = api.EncodeU32(n*3 + 1)
}

func (w *smithWorld) b(_ context.Context, stack []uint64) { w.note(2, stack[0], stack[1]) }

// observed is all that can be seen of a run.
type observed []string

func (o *observed) note(format string, values ...any) {
	*o = append(*o, fmt.Sprintf(format, values...))
}

// run calls every function of a module some times, and tells what came of it. It returns nil if the module is refused.
func (w *smithWorld) run(t testing.TB, file []byte, c *choices) (o observed, i *instance, err error) {
	t.Helper()
	w.calls = nil
	i, err = w.instantiate(t.Context(), file, "")
	if err != nil {
		o.note("%s %v", trapText(err), w.calls)
		return o, nil, err
	}
	t.Cleanup(func() { i.Close(context.Background()) })
	definitions := i.ExportedFunctionDefinitions()
	for turn := range 2 {
		for n := range len(definitions) {
			name := "f" + string(rune('0'+n))
			definition, ok := definitions[name]
			if !ok {
				continue
			}
			i.refill()
			var args []uint64
			for _, p := range definition.ParamTypes() {
				args = append(args, c.arguments(Type(p))...)
			}
			results, err := i.ExportedFunction(name).Call(t.Context(), args...)
			o.note("%d %s(%x) = %s %s, memory %x", turn, name, args, visible(definition.ResultTypes(), results), trapText(err), i.memoryHash())
		}
	}
	o.note("calls %x", w.calls)
	return o, i, nil
}

// smithBudget is how many functions and turns of loops a call has.
const smithBudget = 150

func (i *instance) refill() {
	if budget, ok := i.ExportedGlobal("budget").(api.MutableGlobal); ok {
		budget.Set(smithBudget)
	}
}

func (i *instance) memoryHash() uint64 {
	h := fnv.New64a()
	h.Write([]byte(memoryOf(i)))
	return h.Sum64()
}

func (c *choices) arguments(t Type) []uint64 {
	s := smith{choices: c}
	switch t {
	case I32, F32:
		return []uint64{uint64(uint32(s.integer()))}
	case V128:
		return []uint64{uint64(s.integer()), uint64(s.integer())}
	case FuncRef, ExternRef:
		return []uint64{0}
	default:
		return []uint64{uint64(s.integer())}
	}
}

// visible are results without what is undefined in them, and without the addresses of references.
func visible(types []api.ValueType, results []uint64) string {
	if len(results) == 0 {
		return ""
	}
	results = slices.Clone(results)
	at := 0
	for _, t := range types {
		switch Type(t) {
		case FuncRef, ExternRef:
			results[at] = min(results[at], 1)
		case I32, F32: // compiled code leaves the other half as it was
			results[at] = uint64(uint32(results[at]))
		case V128:
			at++
		}
		at++
	}
	return fmt.Sprintf("%x", results)
}

// checkProgram runs a module as it is and rewritten, and tells how they differ, "" if they do not.
func checkProgram(t testing.TB, file, arguments []byte, both [2]*smithWorld) string {
	t.Helper()
	plain, a, err := both[0].run(t, file, &choices{bytes: arguments})
	if isRefused(err) {
		return fmt.Sprintf("the smith made an invalid module: %v", err)
	}
	rewritten, b, err := both[1].run(t, file, &choices{bytes: arguments})
	if isRefused(err) {
		return fmt.Sprintf("it is refused: %v", err)
	}
	if !slices.Equal(plain, rewritten) {
		for i := range min(len(plain), len(rewritten)) {
			if plain[i] != rewritten[i] {
				return fmt.Sprintf("plain:     %s\nrewritten: %s", plain[i], rewritten[i])
			}
		}
		return fmt.Sprintf("plain: %d, rewritten %d observations", len(plain), len(rewritten))
	}
	if a == nil {
		return ""
	}
	return sameState(a, b)
}

// smithOptions are such as insert charges everywhere, or as the host has them.
var smithOptions = []Options{{}, {Every: 1}, {Every: 3}, {Every: 24}}

// TestPrograms runs random programs as they are and rewritten.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, o := range smithOptions {
		t.Run(fmt.Sprint("every ", o.Every), func(t *testing.T) {
			t.Parallel()
			for seed := range programs(10) {
				bytes := smithBytes(seed<<8+uint64(o.Every), 6000)
				if difference := runProgram(t, forge(bytes), bytes[:64], o); difference != "" {
					t.Errorf("seed %d: %s", seed, difference)
				}
			}
		})
	}
}

// TestTallPrograms runs programs with a memory of 2 GiB, and addresses at both of its ends and beyond.
func TestTallPrograms(t *testing.T) {
	t.Parallel()
	for seed := range programs(10) {
		bytes := smithBytes(seed, 6000)
		both := smithWorlds(t, Options{})
		both[0].tall, both[1].tall = true, true
		s := &smith{choices: &choices{bytes: bytes}, tall: true}
		if difference := checkProgram(t, s.module(), bytes[:64], both); difference != "" {
			t.Errorf("seed %d: %s", seed, difference)
		}
		both[0].runtime.Close(t.Context())
		both[1].runtime.Close(t.Context())
	}
}

// programs are the seeds of those that a test runs: few, or 400 times as many and others each time, to soak.
func programs(few uint64) iter.Seq[uint64] {
	begin := uint64(0)
	if os.Getenv("QUERN_SOAK") == "full" {
		few, begin = 400*few, rand.Uint64()>>16
	}
	return func(yield func(uint64) bool) {
		for seed := begin; seed < begin+few && yield(seed); seed++ {
		}
	}
}

// TestProgramsRapid does the same with programs that are made small when they fail.
func TestProgramsRapid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(r, "choices")
		o := rapid.SampledFrom(smithOptions).Draw(r, "options")
		if difference := runProgram(t, forge(bytes), nil, o); difference != "" {
			r.Error(difference)
		}
	})
}

func runProgram(t *testing.T, file, arguments []byte, o Options) string {
	t.Helper()
	both := smithWorlds(t, o)
	defer both[0].runtime.Close(t.Context())
	defer both[1].runtime.Close(t.Context())
	both[1].quantum = 50
	return checkProgram(t, file, arguments, both)
}

// TestSmith: random programs are worth running. Most of what they do succeeds, and some traps.
func TestSmith(t *testing.T) {
	t.Parallel()
	calls, traps, charges := 0, map[string]int{}, 0
	for seed := range uint64(60) {
		bytes := smithBytes(seed, 6000)
		both := smithWorlds(t, Options{})
		o, i, err := both[1].run(t, forge(bytes), &choices{bytes: bytes[:64]})
		if err != nil { // the start function trapped
			continue
		}
		charges += i.rewritten.Charges
		for _, line := range o {
			if _, trap, ok := strings.Cut(line, "wasm error: "); ok {
				trap, _, _ = strings.Cut(trap, ",")
				traps[trap]++
			} else {
				calls++
			}
		}
	}
	t.Logf("%d calls, traps %v, %d charges", calls, traps, charges)
	if calls < 300 || len(traps) < 4 || charges < 300 {
		t.Errorf("%d calls, traps %v, %d charges", calls, traps, charges)
	}
}

// TestEndlessPrograms cuts off programs that may run for ever. Each ends, and what was cut off can be called again.
func TestEndlessPrograms(t *testing.T) {
	t.Parallel()
	cut := 0
	for seed := range uint64(60) {
		bytes := smithBytes(seed, 3000)
		s := &smith{choices: &choices{bytes: bytes}, endless: true}
		file := s.module()
		both := smithWorlds(t, Options{})
		w := both[1]
		w.quantum, w.most = 1000, 20
		i, err := w.instantiate(t.Context(), file, "")
		if isRefused(err) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for n := 0; err == nil || errors.Is(err, errOutOfFuel); n++ {
			if errors.Is(err, errOutOfFuel) {
				cut++
			}
			var f api.Function
			if i == nil || n >= 2*len(s.functions) {
				break
			}
			if f = i.ExportedFunction("f" + string(rune('0'+n/2))); f == nil {
				break
			}
			w.ticks = 0
			args := make([]uint64, 2*len(f.Definition().ParamTypes()))
			_, err = f.Call(t.Context(), args[:stackLength(f.Definition().ParamTypes())]...)
		}
		w.runtime.Close(t.Context())
		both[0].runtime.Close(t.Context())
	}
	t.Logf("%d calls were cut off", cut)
	if cut < 20 {
		t.Errorf("%d calls were cut off", cut)
	}
}

// stackLength is how many words values of these types take.
func stackLength(types []api.ValueType) (n int) {
	for _, t := range types {
		n++
		if Type(t) == V128 {
			n++
		}
	}
	return n
}

func isRefused(err error) bool { return errors.As(err, &refused{}) }
