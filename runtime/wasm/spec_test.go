package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero/api"
)

// The WebAssembly specification's own tests, in the binary form in which wazero ships them: each file is a script of
// modules and assertions about them. All of it is run twice, with the modules as they are and rewritten, and must do
// what the script says and the same in both.

type script struct {
	Commands []command
}

type command struct {
	Type       string
	Line       int
	Name       string // of a module
	As         string // of a module, for imports
	Filename   string
	ModuleType string `json:"module_type"`
	Action     action
	Expected   []value
	Text       string // of a trap
}

type action struct {
	Type, Module, Field string
	Args                []value
}

// specFolder is where wazero's module has its tests.
var specFolder = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest"), err
})

func specPath(t testing.TB, path ...string) string {
	t.Helper()
	folder, err := specFolder()
	if err != nil {
		t.Fatalf("find the module of wazero: %v", err)
	}
	return filepath.Join(append([]string{folder}, path...)...)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// specCounts are what ran, over all files of a version.
type specCounts struct {
	modules, returns, traps, exhaustions, invalid, malformed, unlinkable atomic.Int64
	// importers are the modules that import a table, memory or global, which the host refuses by policy.
	importers atomic.Int64
	ticks     atomic.Int64
}

func (c *specCounts) String() string {
	return fmt.Sprintf("%d modules, %d returns, %d traps, %d exhaustions, %d invalid, %d malformed, %d unlinkable; %d importers",
		c.modules.Load(), c.returns.Load(), c.traps.Load(), c.exhaustions.Load(), c.invalid.Load(), c.malformed.Load(), c.unlinkable.Load(),
		c.importers.Load())
}

func TestSpecification(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version  string
		features api.CoreFeatures
		every    int
		want     string // the counts in wazero v1.12.0
	}{
		{"v1", api.CoreFeaturesV1, 0, specVersion1},
		{"v1", api.CoreFeaturesV1, 1, specVersion1},
		{"v2", api.CoreFeaturesV2, 0, specVersion2},
	} {
		t.Run(fmt.Sprint(test.version, " every ", test.every), func(t *testing.T) {
			t.Parallel()
			var counts specCounts
			t.Run("files", func(t *testing.T) {
				paths, err := filepath.Glob(specPath(t, test.version, "testdata", "*.json"))
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range paths {
					t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
						t.Parallel()
						runScript(t, path, test.features, Options{Caps: wide, Every: test.every}, &counts)
					})
				}
			})
			if got := counts.String(); got != test.want {
				t.Errorf("ran %s, want %s", got, test.want)
			}
			if counts.ticks.Load() < 500 {
				t.Errorf("%d ticks", counts.ticks.Load())
			}
		})
	}
}

const (
	specVersion1 = "780 modules, 15830 returns, 458 traps, 15 exhaustions, 989 invalid, 661 malformed, 97 unlinkable; 116 importers"
	specVersion2 = "1599 modules, 45889 returns, 2408 traps, 15 exhaustions, 2146 invalid, 719 malformed, 117 unlinkable; 158 importers"
)

// specRun is one script on its way.
type specRun struct {
	*testing.T
	folder           string
	counts           *specCounts
	plain, rewritten *world
	last             pair
	named            map[string]pair
	all              []pair
}

// pair is a module in both worlds.
type pair struct{ plain, rewritten *instance }

func runScript(t *testing.T, path string, features api.CoreFeatures, o Options, counts *specCounts) {
	var s script
	if err := json.Unmarshal(readFile(t, path), &s); err != nil {
		t.Fatal(err)
	}
	run := &specRun{T: t, folder: filepath.Dir(path), counts: counts, named: map[string]pair{}}
	run.plain, run.rewritten = worlds(t, features, o)
	// The host's side of the scripts: what they import from "spectest".
	host := readFile(t, specPath(t, "testdata", "spectest.wasm"))
	for _, w := range []*world{run.plain, run.rewritten} {
		if _, err := w.runtime.Instantiate(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range s.Commands {
		as := ""
		if c.Type == "module" && i+1 < len(s.Commands) && s.Commands[i+1].Type == "register" {
			as = s.Commands[i+1].As
		}
		run.command(c, as)
		if t.Failed() {
			t.Fatalf("line %d: %s %s %s", c.Line, c.Type, c.Filename, c.Action.Field)
		}
	}
	counts.ticks.Add(int64(run.rewritten.ticks))
	for _, p := range run.all {
		if difference := sameState(p.plain, p.rewritten); difference != "" {
			t.Error(difference)
		}
	}
}

func (r *specRun) command(c command, as string) {
	switch c.Type {
	case "module":
		r.module(c, as)
	case "register": // with the module before it
	case "assert_return", "action":
		r.counts.returns.Add(1)
		r.action(c)
	case "assert_trap":
		r.counts.traps.Add(1)
		r.action(c)
	case "assert_exhaustion":
		r.counts.exhaustions.Add(1)
		r.action(c)
	case "assert_invalid":
		r.invalid(c, &r.counts.invalid)
	case "assert_malformed":
		r.invalid(c, &r.counts.malformed)
	case "assert_unlinkable", "assert_uninstantiable":
		r.unlinkable(c)
	default:
		r.Errorf("unknown command %q", c.Type)
	}
}

func (r *specRun) file(c command) []byte { return readFile(r, filepath.Join(r.folder, c.Filename)) }

func (r *specRun) module(c command, as string) {
	r.counts.modules.Add(1)
	file := r.file(c)
	var p pair
	var err error
	if p.plain, err = r.plain.instantiate(r.Context(), file, as); err != nil {
		r.Fatalf("plain: %v", err)
	}
	p.rewritten, err = r.rewritten.instantiate(r.Context(), file, as)
	if r.imports(file) {
		r.counts.importers.Add(1)
	}
	if err != nil {
		r.Fatalf("rewritten: %v", err)
	}
	r.last = p
	r.all = append(r.all, p)
	if c.Name != "" {
		r.named[c.Name] = p
	}
}

// imports tells whether a module imports more than functions, which the host refuses by what
// the outline says.
func (r *specRun) imports(file []byte) bool {
	m, err := Rewrite(file, *r.rewritten.options)
	if err != nil {
		r.Errorf("Rewrite: %v", err)
		return false
	}
	others := false
	for _, i := range m.Imports {
		others = others || i.Kind != Function
	}
	return others
}

// action is a call or the value of a global.
func (r *specRun) action(c command) {
	p := r.last
	if c.Action.Module != "" {
		p = r.named[c.Action.Module]
	}
	plain, err := p.plain.act(r.Context(), c.Action)
	r.judge(c, "plain", plain, err)
	rewritten, rewrittenErr := p.rewritten.act(r.Context(), c.Action)
	r.judge(c, "rewritten", rewritten, rewrittenErr)
	if trapText(err) != trapText(rewrittenErr) {
		r.Errorf("%v, rewritten %v", err, rewrittenErr)
	}
}

func (i *instance) act(ctx context.Context, a action) ([]uint64, error) {
	if a.Type == "get" {
		return []uint64{i.ExportedGlobal(a.Field).Get()}, nil
	}
	var args []uint64
	for _, v := range a.Args {
		args = append(args, v.arguments()...)
	}
	return i.ExportedFunction(a.Field).Call(ctx, args...)
}

// judge compares what an action did with what the script says.
func (r *specRun) judge(c command, where string, results []uint64, err error) {
	want := ""
	switch c.Type {
	case "assert_trap":
		want = "wasm error: " + trapOf(c.Text)
	case "assert_exhaustion":
		want = "stack overflow"
	}
	if got := trapText(err); got != want {
		r.Errorf("%s: trap %q, want %q", where, got, want)
		return
	}
	if err != nil || c.Type == "action" {
		return
	}
	for _, expected := range c.Expected {
		n := 1
		if expected.Type == "v128" {
			n = 2
		}
		if len(results) < n || !expected.matches(results[:n]) {
			r.Errorf("%s: results %#x, want %v", where, results, c.Expected)
			return
		}
		results = results[n:]
	}
	if len(results) > 0 {
		r.Errorf("%s: %d results too many", where, len(results))
	}
}

// trapOf is how wazero says what the specification's reference implementation says.
func trapOf(text string) string {
	switch {
	case text == "indirect call":
		return "indirect call type mismatch"
	case text == "undefined element", text == "undefined", text == "out of bounds table access", strings.HasPrefix(text, "uninitialized"):
		return "invalid table access"
	case text == "null", strings.HasPrefix(text, "null "):
		return "null reference"
	default:
		return text
	}
}

// mutableConstant is the text about a constant expression that reads a mutable global. wazero takes it, but the module
// imports a global that nobody exports.
const mutableConstant = "constant expression required"

// invalid checks that a module is refused as it is and stays refused.
func (r *specRun) invalid(c command, counter *atomic.Int64) {
	if c.ModuleType == "text" {
		return
	}
	counter.Add(1)
	file := r.file(c)
	_, err := r.plain.instantiate(r.Context(), file, "")
	if !errors.As(err, &refused{}) && (err == nil || c.Text != mutableConstant) {
		r.Errorf("%s is not refused: %v", c.Filename, err)
	}
	_, err = r.rewritten.instantiate(r.Context(), file, "")
	if !errors.As(err, &refused{}) && (err == nil || c.Text != mutableConstant) {
		r.Errorf("%s is not refused when rewritten: %s: %v", c.Filename, c.Text, err)
	}
	var bad *Error
	if errors.As(err, &bad) && (bad.Offset < 0 || bad.Offset > len(file)) {
		r.Errorf("%s: an error at byte %d of %d", c.Filename, bad.Offset, len(file))
	}
}

// unlinkable checks a module that is valid and cannot be instantiated.
func (r *specRun) unlinkable(c command) {
	r.counts.unlinkable.Add(1)
	file := r.file(c)
	_, plain := r.plain.instantiate(r.Context(), file, "")
	_, rewritten := r.rewritten.instantiate(r.Context(), file, "")
	var bad *Error
	if errors.As(rewritten, &bad) {
		r.Errorf("%s: Rewrite: %v", c.Filename, rewritten)
	}
	if r.imports(file) {
		r.counts.importers.Add(1)
		if (plain == nil) != (rewritten == nil) { // the texts tell sizes, of which the rewritten ones differ
			r.Errorf("%s: %v, rewritten %v", c.Filename, plain, rewritten)
		}
		return
	}
	if trapText(plain) != trapText(rewritten) {
		r.Errorf("%s: %v, rewritten %v", c.Filename, plain, rewritten)
	}
	// wazero does not refuse segments that lie outside of tables it has already filled in part.
	if plain == nil && c.Text != "out of bounds table access" {
		r.Errorf("%s is instantiated", c.Filename)
	}
}
