package plugins

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// model is what the directory ought to make of one plugin, by its files alone.
type model struct {
	number int  // of the module; 0: there is none, -1: it is bad
	shared bool // wants the queue "shared" beside its own
	broken bool // the manifest is bad, or no file
}

// change does one thing to a plugin's files, and to the model.
func (f *fixture) change(random *rand.Rand, name string, m *model) {
	module, manifest := name+manifest.ModuleSuffix, name+manifest.Suffix
	plugin := filepath.Base(name)
	switch random.IntN(10) {
	case 0, 1:
		m.number = 1 + random.IntN(5)
		f.remake(module, func(path string) { write(f.t, path, guest(f.t, m.number)) })
	case 2, 3:
		m.number = 1 + random.IntN(5)
		if info, err := os.Lstat(f.path(module)); err == nil && !info.Mode().IsRegular() {
			f.remove(module)
		}
		f.write(module, guest(f.t, m.number))
	case 4:
		m.number = -1
		f.remake(module, func(path string) { write(f.t, path, []byte("bad")) })
	case 5:
		m.number = -1
		f.remove(module)
		check(f.t, syscall.Mkfifo(f.path(module), 0o600))
	case 6:
		m.number = 0
		f.remove(module)
	case 7:
		m.shared, m.broken = true, false
		f.remake(manifest, func(path string) { write(f.t, path, fmt.Appendf(nil, "queues: [%s, shared]", plugin)) })
	case 8:
		m.shared, m.broken = false, true
		f.remake(manifest, func(path string) { write(f.t, path, []byte("queues: shared")) })
	case 9:
		m.shared, m.broken = false, false
		f.remove(manifest)
	}
}

// remake puts what make makes in the place of what is there.
func (f *fixture) remake(name string, mk func(path string)) {
	aside := f.path(filepath.Dir(name) + "/.aside")
	mk(aside)
	if info, err := os.Lstat(f.path(name)); err == nil && info.IsDir() {
		f.remove(name)
	}
	check(f.t, os.Rename(aside, f.path(name)))
}

// agrees compares what the directory says with the models of all plugins.
func (f *fixture) agrees(models map[string]*model) error {
	for name, m := range models {
		tenant, plugin := strings.TrimSuffix(filepath.Dir(name), "."), filepath.Base(name)
		serving, serves := f.status(tenant, plugin, StateServing)
		refused, isRefused := f.status(tenant, plugin, StateRefused)
		orphan := false
		if _, err := os.Lstat(f.path(name + manifest.Suffix)); err == nil {
			orphan = m.number == 0
		}
		good := m.number > 0 && !m.broken
		switch {
		case m.number == 0 && serves:
			return fmt.Errorf("%s is gone and serves", name)
		case m.number == 0 && isRefused != orphan:
			return fmt.Errorf("%s is gone: refused %t, manifest alone %t", name, isRefused, orphan)
		case m.number != 0 && !good && !isRefused:
			return fmt.Errorf("%s is bad and not refused", name)
		case good && !isRefused && serving.Digest != runtime.DigestOf(guest(f.t, m.number)):
			return fmt.Errorf("%s is good, and what serves is %+v", name, serving)
		case good && !isRefused && m.shared != (len(serving.Queues) == 2):
			return fmt.Errorf("%s serves the queues %v", name, serving.Queues)
		case good && isRefused && !strings.Contains(refused.Error, `the queue "shared" is served by`):
			return fmt.Errorf("%s is good, and refused: %s", name, refused.Error)
		case good && m.shared && f.runs("acme", "shared") == "":
			return fmt.Errorf("%s wants the shared queue, and nobody serves it", name)
		}
	}
	return nil
}

// Whatever happens to the files, in whatever order and however fast: when it is over, the directory
// agrees with them.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { mkdir(t, dir+"/acme") })
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	models := map[string]*model{"a": {}, "b": {}, "c": {}, "acme/a": {}, "acme/d": {}}
	names := slices.Sorted(maps.Keys(models))
	for round := range 8 {
		var said []string
		for range 1 + random.IntN(25) {
			name := names[random.IntN(len(names))]
			f.change(random, name, models[name])
			said = append(said, fmt.Sprintf("%s%+v", name, *models[name]))
			<-time.After(time.Duration(random.IntN(40)) * time.Millisecond)
		}
		t.Logf("round %d: %s", round, strings.Join(said, " "))
		eventually(t, func() error { return f.agrees(models) })
	}
}
