package runtime

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// These tests hold what has gone wrong in wazero, or in what was built on it, and would concern guests here.

// TestIndirectCallsOfSeveralEngines: code that one engine has compiled calls through tables in another as well, and goes
// on when a twin of the same bytes is closed. (wazero's issues 2511 and 2336.)
func TestIndirectCallsOfSeveralEngines(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	binary := runtimetest.BuildWAT(t, `(module (type $t (func (param i64) (result i64))) (type $u (func (result i32)))
		(table funcref (elem $double $answer))
		(func $double (type $t) (i64.mul (local.get 0) (i64.const 2)))
		(func $answer (type $u) (i32.const 42))
		(func (export "_start")
			(if (i64.ne (call_indirect (type $t) (i64.const 21) (i32.const 0)) (i64.extend_i32_u (call_indirect (type $u) (i32.const 1)))) (then unreachable))))`)
	var modules []*Module
	for range 2 {
		engine := setupWith(t, Config{CacheDir: dir})
		other := loadInto(t, engine, runtimetest.Empty(t)) // so that types have other numbers in the next engine
		complete(t, call(t, other, "", Limits{}))
		for range 2 {
			modules = append(modules, loadInto(t, engine, binary))
		}
	}
	if err := modules[0].Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, module := range modules[1:] {
		for range 3 {
			complete(t, bound(module, "pool", Profile{}).Run(t.Context(), Call{Plugin: "plugin"}))
		}
	}
}

// TestTwoLoadsOfOneCode: who loads code that another owner is loading gets it whole. (wazero shows others what it has read
// from its cache before it has made the entry points: its issue 2547.)
func TestTwoLoadsOfOneCode(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	var types strings.Builder // each has an entry point
	for n := range 600 {
		fmt.Fprintf(&types, "(func (param%s%s))\n", strings.Repeat(" i32", n%32), strings.Repeat(" i64", n/32))
	}
	binary := runtimetest.BuildWAT(t, "(module (func (export \"_start\"))\n"+types.String()+")")
	one := loadInto(t, engine, carriedBy(t, binary, map[string][]byte{"/1": nil}))
	two := loadInto(t, engine, carriedBy(t, binary, map[string][]byte{"/2": nil}))
	for range 20 {
		if freed, err := one.code.Unload(t.Context()); freed == 0 || err != nil {
			t.Fatal(freed, err)
		}
		var both sync.WaitGroup
		for _, module := range []*Module{one, two} {
			both.Go(func() {
				pool := module.Bind(Profile{Tenant: module.info.Digest})
				defer pool.Close()
				if outcome := pool.Run(t.Context(), Call{Plugin: "plugin"}); outcome.Kind != Complete {
					t.Errorf("%+v", outcome)
				}
			})
		}
		both.Wait()
	}
}

// TestRetiredInstancesWriteNowhere: an instance whose pool has ended while it runs can go on to grow and to write, and no
// other instance gets any of its memory meanwhile or afterwards. (A fork of wazero gave such memory to the next one.)
func TestRetiredInstancesWriteNowhere(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildWAT(t, `(module
		(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
		(memory (export "memory") 1 40) (data (i32.const 0) "\10\00\00\00\02\00\00\00") (data (i32.const 16) "x\0a")
		(func $dirty (param $at i32) (result i32)
			(loop $l
				(if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (return (i32.const 1))))
				(br_if $l (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.mul (memory.size) (i32.const 65536)))))
			(i32.const 0))
		(func (export "_start")
			(if (call $dirty (i32.const 64)) (then unreachable))
			(drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
			(if (i32.eq (memory.grow (i32.const 20)) (i32.const -1)) (then unreachable))
			(if (call $dirty (i32.const 64)) (then unreachable))
			(memory.fill (i32.const 64) (i32.const 0xaa) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 64)))))`))
	for round := range 5 {
		retired := fmt.Sprint("retired ", round)
		complete(t, bound(module, retired, Profile{}).Run(t.Context(), Call{Plugin: "plugin"}))
		waits, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan Outcome)
		go func() {
			ended <- bound(module, retired, Profile{}).Run(t.Context(), Call{Plugin: "plugin", Log: func(string) {
				close(waits)
				<-goOn
			}})
		}()
		<-waits
		retire(module, retired)
		for n := range 10 {
			complete(t, bound(module, "other", Profile{Tenant: fmt.Sprint(n)}).Run(t.Context(), Call{Plugin: "plugin"}))
		}
		close(goOn)
		for n := range 10 {
			complete(t, bound(module, "another", Profile{Tenant: fmt.Sprint(n)}).Run(t.Context(), Call{Plugin: "plugin"}))
		}
		complete(t, <-ended)
		complete(t, bound(module, retired, Profile{}).Run(t.Context(), Call{Plugin: "plugin"}))
	}
}
