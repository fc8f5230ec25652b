package plugins

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/bundle"
)

// purse gives each tenant some bytes.
type purse struct {
	each int64

	mu    sync.Mutex
	used  map[string]int64
	times int // that it gave
}

func (p *purse) hold(tenant string, bytes int64) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[tenant]+bytes > p.each {
		return nil
	}
	p.used[tenant] += bytes
	p.times++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.used[tenant] -= bytes
	})
}

func (p *purse) of(tenant string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used[tenant]
}

// carrying is a guest that carries a file of so many bytes, which differ by the letter.
func carrying(t *testing.T, letter string, size int) []byte {
	t.Helper()
	module, err := bundle.Append(guest(t, 1), map[string][]byte{"/data": bytes.Repeat([]byte(letter), size)})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// What modules carry and manifests name is taken from the tenant's memory before it is unpacked or read, once for the plugins that
// share it, and given back with the last of them.
func TestHoldings(t *testing.T) {
	t.Parallel()
	p := &purse{each: 1 << 20, used: map[string]int64{}}
	f := setup(t, Config{Hold: p.hold}, func(dir string) {
		for _, folder := range []string{"/acme", "/{blue}"} {
			mkdir(t, dir+folder)
			for _, name := range []string{"/one", "/two"} {
				write(t, dir+folder+name+".wasm", carrying(t, "a", 600<<10))
			}
		}
	})
	for _, tenant := range []string{"acme", "{blue}"} {
		if f.runs(tenant, "one") == "" || f.runs(tenant, "two") == "" {
			t.Errorf("two plugins of %s that share their files do not run", tenant)
		}
	}
	if used := p.of("acme"); used < 600<<10 || used > 650<<10 {
		t.Errorf("plugins that share 600 KiB hold %d bytes", used)
	}
	const lacks = "no memory is left for the files: what the plugins of tenant \"acme\" carry and name takes all the memory that this host gives them: " +
		"remove some, or give the host more by --memory"
	f.write("acme/three.wasm", carrying(t, "b", 600<<10))
	f.awaitRefusal("acme", "three", f.path("acme/three.wasm")+": "+lacks)
	f.write("acme/data", bytes.Repeat([]byte("c"), 600<<10))
	f.write("acme/four.yaml", []byte("capabilities: {files: [{from: data, to: /data}]}"))
	f.write("acme/four.wasm", guest(t, 4))
	f.awaitRefusal("acme", "four", f.path("acme/four.wasm")+": "+lacks)
	// The warm input stays in memory as well.
	f.write("acme/five.yaml", []byte("warm: {input: data}"))
	f.write("acme/five.wasm", guest(t, 5))
	f.awaitRefusal("acme", "five", f.path("acme/five.wasm")+": "+lacks)
	// When there is room, one of those that were refused is loaded.
	f.remove("acme/one.wasm")
	f.remove("acme/two.wasm")
	eventually(t, func() error {
		for _, queue := range []string{"three", "four", "five"} {
			if f.runs("acme", queue) != "" {
				return nil
			}
		}
		return fmt.Errorf("none of the refused plugins runs; %d bytes are held", p.of("acme"))
	})
	f.stop()
	if left := p.of("acme") + p.of("{blue}"); left != 0 {
		t.Errorf("%d bytes are held when all plugins are gone", left)
	}
}

// A module that unpacks to much more than there is room for is refused before it does.
func TestHoldingsBeforeUnpacking(t *testing.T) {
	t.Parallel()
	p := &purse{each: 1 << 20, used: map[string]int64{}}
	f := setup(t, Config{Hold: p.hold}, func(dir string) {
		write(t, dir+"/bomb.wasm", carrying(t, "a", bundle.MaxBytes-1<<20))
	})
	f.awaitRefusal("", "bomb", "no memory is left for the files: what the plugins of all tenants carry")
	if p.times > 0 || p.of("") != 0 {
		t.Errorf("%d times was memory taken, %d bytes are held", p.times, p.of(""))
	}
}

// A version needs room for its files once while it is loaded, whether its module is loaded already or not: an update needs room for two.
func TestHoldingsOfUpdates(t *testing.T) {
	t.Parallel()
	p := &purse{each: 1 << 20, used: map[string]int64{}}
	const files = "capabilities: {files: [{from: data, to: /data}]}\n"
	f := setup(t, Config{Hold: p.hold}, func(dir string) {
		mkdir(t, dir+"/acme")
		write(t, dir+"/acme/plain.wasm", guest(t, 4))
		write(t, dir+"/acme/data", bytes.Repeat([]byte("c"), 400<<10))
	})
	f.write("acme/one.yaml", []byte(files))
	f.write("acme/one.wasm", guest(t, 4))
	for crashes := range 2 {
		f.write("acme/one.yaml", fmt.Appendf(nil, "%smax_crashes: %d\n", files, crashes+1))
		eventually(t, func() error {
			v := f.Acquire("acme", "one")
			if v == nil {
				return fmt.Errorf("it is not served; %d bytes are held", p.of("acme"))
			}
			defer v.Release()
			if v.Manifest.MaxCrashes != crashes+1 {
				return fmt.Errorf("the old version serves; %d bytes are held", p.of("acme"))
			}
			return nil
		})
	}
}
