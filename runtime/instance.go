package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// instance is a module with memory, globals and tables of its own. One run uses it at a time.
type instance struct {
	module  *Module // whose code it holds
	guest   api.Module
	memory  memory
	counter api.MutableGlobal
	crash   *crash.Entry        // tells a monitor whose it is
	globals []api.MutableGlobal // those that the guest can change
	entry   api.Function        // nil before its first call, and after a bad end

	snapshot *guestSnapshot // from which it starts; nil if it serves one call

	ctx     context.Context //nolint:containedctx // of all calls of the guest: it leads to the instance
	run     *run            // that uses it
	running api.Function    // that the run has called last
	calls   int             // served

	startFuel int64 // of a module whose tasks pay for the start
	startCPU  time.Duration
}

// instanceKey is the key of the instance in the context of its calls.
type instanceKey struct{}

// instanceConfig gives instances no name, so that there may be any number, and calls no function of theirs.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// instantiate makes an instance whose memory grows to the limit at most. It takes over a hold of the code, which closing the
// instance gives back, or an error. A *faultError is the host's error, any other the module's.
func (m *Module) instantiate(limit int64) (i *instance, err error) {
	i = &instance{module: m, memory: memory{limit: uint64(limit), declared: m.declared}}
	i.ctx = context.WithValue(context.Background(), instanceKey{}, i)
	defer func() {
		// wazero panics if it gets no memory, and recovers only below a call.
		if p := recover(); p != nil {
			err = &faultError{fmt.Errorf("panic while instantiating a guest: %v\n%s", p, debug.Stack())}
		}
		if i.memory.err != nil {
			err = &faultError{i.memory.err}
		}
		if err != nil {
			err = errors.Join(err, i.close())
			i = nil
		}
	}()
	ctx := experimental.WithMemoryAllocator(i.ctx, &i.memory)
	i.guest, err = m.code.backend.runtime.InstantiateModule(ctx, m.code.compiled, instanceConfig)
	if err != nil {
		return i, err
	}
	m.host.watch(i)
	if i.counter, err = i.global(wasm.FuelExport); err != nil {
		return i, err
	}
	for n, kind := range m.mutable {
		if kind.Number() {
			global, err := i.global(wasm.GlobalExport(n))
			if err != nil {
				return i, err
			}
			i.globals = append(i.globals, global)
		}
	}
	return i, nil
}

// watch adds the instance to the crash table, and warns once of a memory without guard pages.
func (h *host) watch(i *instance) {
	var addresses []byte
	if space := i.memory.space; space != nil {
		addresses = space.Addresses()
		if !space.Guarded() && len(addresses) > 0 {
			h.warnUnguarded.Do(func() {
				h.logger.Warn("memories of plugins have no guard pages, which take 8 GiB of address space each: raise its limit (ulimit -v), or serve fewer plugins")
			})
		}
	}
	i.crash = h.crash.Add(addresses)
}

func (i *instance) global(name string) (api.MutableGlobal, error) {
	global, ok := i.guest.ExportedGlobal(name).(api.MutableGlobal)
	if !ok {
		return nil, &faultError{fmt.Errorf("the instance has no global %s", name)}
	}
	return global, nil
}

// guestSnapshot is the state in which the instances of a pool begin.
type guestSnapshot struct {
	memory  *snapshot.Image // nil for a module without memory
	globals []uint64
}

// capture takes a snapshot of the instance, which continues as if it was made from the snapshot. Others share the pages of a
// lasting one.
func (i *instance) capture(lasting bool) (*guestSnapshot, error) {
	s := &guestSnapshot{}
	for _, global := range i.globals {
		s.globals = append(s.globals, global.Get())
	}
	if i.memory.space != nil {
		var err error
		if s.memory, err = i.module.code.take(i.memory.contents(), lasting); err != nil {
			return nil, err
		}
		if err := i.memory.adopt(s.memory); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	i.snapshot = s
	return s, nil
}

// adopt makes a new instance continue from the snapshot.
func (i *instance) adopt(s *guestSnapshot) error {
	if s.memory != nil {
		missing := uint32((s.memory.Size() - i.memory.size) / wasm.PageSize)
		if _, ok := i.guest.Memory().Grow(missing); !ok {
			return fmt.Errorf("memory does not grow to the %d bytes of the snapshot", s.memory.Size())
		}
		if err := i.memory.adopt(s.memory); err != nil {
			return err
		}
	}
	i.snapshot = s
	i.setGlobals()
	return nil
}

// reset restores the snapshot, whatever the guest has done since.
func (i *instance) reset(mode snapshot.Mode) error {
	if image := i.snapshot.memory; image != nil {
		if err := i.memory.reset(mode, image); err != nil {
			return err
		}
		if err := i.shrink(image.Size()); err != nil {
			return err
		}
	}
	i.setGlobals()
	return nil
}

func (i *instance) setGlobals() {
	for n, global := range i.globals {
		global.Set(i.snapshot.globals[n])
	}
}

// shrink takes grown memory from the guest. wazero cannot do that, but accepts any size that the allocator returns: so the
// memory grows by a page, for which the rewritten module's maximum always has room, and Reallocate returns the size.
func (i *instance) shrink(size uint64) error {
	if i.memory.size == size {
		return nil
	}
	i.memory.shrunk = true
	defer func() { i.memory.shrunk = false }()
	i.memory.size = size
	if _, ok := i.guest.Memory().Grow(1); !ok {
		return errors.New("memory cannot be shrunk")
	}
	return nil
}

// function is an export without parameters, which the module was checked to have.
func (i *instance) function(name string) (api.Function, error) {
	f := i.guest.ExportedFunction(name)
	if f == nil {
		return nil, &faultError{fmt.Errorf("the instance has no function %s", name)}
	}
	return f, nil
}

// callExport calls a function that is called once.
func (i *instance) callExport(name string) error {
	f, err := i.function(name)
	if err == nil {
		i.running = f
		err = f.CallWithStack(i.ctx, nil)
	}
	return err
}

// callStartup calls what a handler runs before its first task. It has a run of its own: a task neither pays for it nor logs it,
// nor finds files that it opened.
func (i *instance) callStartup() error {
	for _, name := range i.module.startup {
		if err := i.callExport(name); err != nil {
			return err
		}
	}
	return nil
}

// callTask calls the guest for a task.
func (i *instance) callTask() error {
	i.calls++
	if i.module.info.Kind == Command && i.module.start {
		if err := i.callExport(wasm.StartExport); err != nil {
			return err
		}
	}
	return i.callEntry()
}

// callEntry calls the entry point. The run's code becomes its result, which is 0 for a command.
func (i *instance) callEntry() (err error) {
	if i.entry == nil {
		if i.entry, err = i.function(entryPoints[i.module.info.Kind]); err != nil {
			return err
		}
	}
	i.running = i.entry
	err = i.entry.CallWithStack(i.ctx, i.run.result[:])
	if err == nil {
		i.run.code = int(int32(uint32(i.run.result[0])))
	}
	if err != nil || stackOf(i.entry) > maxKeptStack {
		i.entry = nil // and with it its call stack, which may be large
	}
	return err
}

// maxKeptStack is the largest call stack that an instance keeps between calls, in bytes. Recursion makes it grow to 84 MB.
const maxKeptStack = 64 << 10

// held is what the idle instance takes in bytes, beside its snapshot and code.
func (i *instance) held() int64 {
	bytes := perInstance + i.module.tables
	if i.memory.space != nil {
		bytes += i.memory.space.Held()
	}
	return bytes
}

// perInstance is about what an instance takes on Go's heap, in bytes; most is its call stack.
const perInstance = 32 << 10

// close gives back all that the instance takes. Nothing may run in it any more.
func (i *instance) close() (err error) {
	if i.guest != nil {
		err = i.guest.Close(i.ctx)
	}
	i.crash.Remove()
	i.module.code.release()
	return errors.Join(err, i.memory.release())
}

func (s *guestSnapshot) close() error {
	if s == nil || s.memory == nil {
		return nil
	}
	return s.memory.Close()
}

// held is the most that the snapshot takes, in bytes, with its part of what several share.
func (s *guestSnapshot) held() int64 {
	if s == nil || s.memory == nil {
		return 0
	}
	return int64(s.memory.Held())
}

// alone is what closing the snapshot frees, in bytes.
func (s *guestSnapshot) alone() int64 {
	if s == nil || s.memory == nil {
		return 0
	}
	return int64(s.memory.Alone())
}
