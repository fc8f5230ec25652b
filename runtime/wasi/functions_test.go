package wasi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// TestFunctions compares names and types with those of an implementation that others use.
func TestFunctions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	builder := rt.NewHostModuleBuilder(ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(builder)
	compiled, err := builder.Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := compiled.ExportedFunctions()
	for _, f := range Functions() {
		theirs, ok := want[f.Name]
		if !ok {
			t.Errorf("%s is no function of preview 1, or there twice", f.Name)
			continue
		}
		if !slices.Equal(f.Params, theirs.ParamTypes()) || !slices.Equal(f.Results, theirs.ResultTypes()) {
			t.Errorf("%s has the types %x -> %x, want %x -> %x", f.Name, f.Params, f.Results, theirs.ParamTypes(), theirs.ResultTypes())
		}
		delete(want, f.Name)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// hostile are arguments that mean nothing: the edges of a memory of one page, numbers whose products
// with sizes of structures overflow, negative ones, descriptors.
var hostile = []uint64{
	0, 1, 2, 3, 4, 1023, 1025, 65528, 65535, 65536, 0x05555556, 0x10000000, 0x20000000, 0x7fffffff, 0x80000000, 0xffffffff,
	0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,
}

// TestHostile calls every function with the same value for each parameter, and with each value for
// one parameter beside good ones.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, f := range Functions() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			for pages := range byte(2) {
				mem := newMemory(t, pages)
				for _, value := range hostile {
					for at := -1; at < len(f.Params); at++ {
						stack := make([]uint64, max(1, len(f.Params)))
						for i := range f.Params {
							if stack[i] = 3; at < 0 || at == i {
								stack[i] = value
							}
						}
						arguments := slices.Clone(stack)
						s := newSystem(Config{Host: &recorder{}, Stdin: []byte("in"), Args: []string{"a"}, Files: tree(t), Checkpoint: []byte{}})
						p := ending(func() { f.Call(s, mem, stack) })
						if _, exits := p.(exited); p != nil && !exits {
							t.Errorf("%s%x with %d pages panics: %v", f.Name, arguments, pages, p)
						}
					}
				}
			}
		})
	}
}

// TestUnwind: what the host panics with passes as it is, whichever function it comes through.
func TestUnwind(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]uint64{
		"args_get":          {0, 100},
		"environ_get":       {0, 100},
		"fd_read":           {0, 0, 1, 200},
		"fd_pread":          {4, 0, 1, 0, 200},
		"fd_write":          {1, 0, 1, 200},
		"fd_readdir":        {3, 1000, 1000, 0, 200},
		"path_open":         {3, 0, 300, 5, 0, 0, 0, 0, 200},
		"path_filestat_get": {3, 0, 300, 5, 200},
		"poll_oneoff":       {1000, 2000, 1, 200},
		"random_get":        {0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Stdin: []byte("in"), Args: []string{"long enough"}, Env: []string{"A=long enough"}, Files: tree(t)})
			g.open("dir/one")
			g.vectors(0, [2]uint32{400, 100})
			g.put(300, "dir/x")
			g.host.spent, g.host.budget = 0, 1
			if p := ending(func() { g.call(name, arguments...) }); p != errBroke {
				t.Errorf("%s panics with %v", name, p)
			}
		})
	}
	g := setup(t, 1, Config{})
	if p := ending(func() { g.functions["proc_exit"].Call(g.system, g.mem, []uint64{1<<32 + 77}) }); p != exited(77) {
		t.Errorf("proc_exit panics with %v", p)
	}
}

// TestErrno compares the numbers with those of the description.
func TestErrno(t *testing.T) {
	t.Parallel()
	for got, want := range map[errno]int{
		errnoSuccess: 0, errnoBadf: 8, errnoExist: 20, errnoFault: 21, errnoFbig: 22, errnoIlseq: 25, errnoInval: 28, errnoIsdir: 31,
		errnoMfile: 33, errnoNametoolong: 37, errnoNoent: 44, errnoNotdir: 54, errnoNotsock: 57, errnoNotsup: 58, errnoOverflow: 61,
		errnoPerm: 63, errnoRofs: 69, errnoSpipe: 70,
	} {
		if int(got) != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}

func ExampleFunctions() {
	for _, f := range Functions() {
		if f.Name == "fd_seek" {
			fmt.Println(f.Name, len(f.Params), len(f.Results))
		}
	}
	// Output: fd_seek 4 1
}
