package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// instance is an instantiated module with its own memory, globals and tables. One run uses it at a time.
type instance struct {
	module   *Module  // the instance holds the module's code
	startup  []string // exports that the host calls before the first task
	export   string   // the export that a task calls
	guest    api.Module
	memories []*memory           // the guest's memory, if it has one, then the memory of an Extism plugin's kernel
	kernel   api.Module          // the module that an Extism plugin imports from; nil for other kinds
	blocks   *abi.Blocks         // the memory blocks of the kernel; nil without a kernel
	counter  api.MutableGlobal   // counts down the guest's fuel
	place    api.Global          // see wasm.PlaceExport; nil if the module notes no places
	crash    *crash.Entry        // shows a monitor which task the instance runs
	globals  []api.MutableGlobal // the globals that the guest can change
	entry    api.Function        // the function named export; nil if it has to be looked up

	tape     *replay.Tape   // what its start got from outside; nil if that is not recorded
	snapshot *guestSnapshot // the state after a reset; nil if the instance serves only one call

	ctx     context.Context //nolint:containedctx // of all calls of the guest; it carries the instance
	run     *run            // the run that uses the instance now
	running api.Function    // the function that the run called last
	calls   int             // number of tasks served

	startFuel int64         // fuel that the start burned; 0 if the task does not pay for it
	startCPU  time.Duration // processor time of the start; 0 if the task does not pay for it
}

// instanceKey is the context key under which the guest's calls find their instance.
type instanceKey struct{}

// instanceConfig gives instances no name, so that a wazero runtime can have any number of them. It also keeps wazero
// from calling start functions.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// instantiate makes an instance whose memory can grow to limit bytes. It takes over the caller's hold of the code:
// closing the instance releases the hold, and so does an error of instantiate. A *faultError is the host's fault; any
// other error is the module's.
func (m *Module) instantiate(limit int64) (i *instance, err error) {
	guest := &memory{limit: uint64(limit), declared: m.declared}
	i = &instance{module: m, memories: []*memory{guest}}
	i.ctx = context.WithValue(context.Background(), instanceKey{}, i)
	defer func() {
		// wazero panics if it gets no memory, and recovers panics only inside a guest's call.
		if p := recover(); p != nil {
			err = &faultError{fmt.Errorf("panic while instantiating a guest: %v\n%s", p, debug.Stack())}
		}
		for _, memory := range i.memories {
			if memory.err != nil {
				err = &faultError{memory.err}
			}
		}
		if err != nil {
			err = errors.Join(err, i.close())
			i = nil
		}
	}()
	ctx := i.ctx
	if m.info.Kind == Extism {
		if ctx, err = i.addKernel(); err != nil {
			return i, err
		}
	}
	ctx = experimental.WithMemoryAllocator(ctx, guest)
	i.guest, err = m.code.Instantiate(ctx, instanceConfig)
	if err != nil {
		return i, err
	}
	guest.module = i.guest
	i.memories = slices.DeleteFunc(i.memories, func(memory *memory) bool { return memory.space == nil })
	m.host.watch(i)
	if i.counter, err = i.global(wasm.FuelExport); err != nil {
		return i, err
	}
	i.place = i.guest.ExportedGlobal(wasm.PlaceExport)
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

// addKernel makes the kernel of an Extism plugin, and returns a context in which the guest's imports find it.
func (i *instance) addKernel() (_ context.Context, err error) {
	guest := i.memories[0]
	guest.beside = &memory{limit: guest.limit, declared: MaxMemory, beside: guest}
	i.memories = append(i.memories, guest.beside)
	i.kernel, err = i.module.code.InstantiateKernel(experimental.WithMemoryAllocator(i.ctx, guest.beside), instanceConfig)
	if err != nil {
		return nil, &faultError{fmt.Errorf("instantiate the kernel: %w", err)}
	}
	guest.beside.module = i.kernel
	i.blocks = abi.NewBlocks(i.ctx, i.kernel)
	return experimental.WithImportResolver(i.ctx, func(name string) api.Module {
		if name == abi.ExtismModule || name == abi.ExtismOldModule {
			return i.kernel
		}
		return nil
	}), nil
}

// watch adds the instance to the crash table. The first time that a memory has no guard pages, it logs a warning.
func (h *host) watch(i *instance) {
	var addresses []byte
	if len(i.memories) > 0 {
		space := i.memories[0].space
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

// guestSnapshot is the state from which the instances of a pool start each task.
type guestSnapshot struct {
	memories []*snapshot.Image // in the order of instance.memories
	globals  []uint64
	tape     *replay.Tape // that of the instance from which it was taken
}

// capture takes a snapshot of the instance, and maps the snapshot into the instance's memory, as if the instance had
// been made from the snapshot. If lasting is true, later snapshots of the same code can share pages with this one.
func (i *instance) capture(lasting bool) (*guestSnapshot, error) {
	s := &guestSnapshot{tape: i.tape}
	for _, global := range i.globals {
		s.globals = append(s.globals, global.Get())
	}
	for n, memory := range i.memories {
		var base *snapshot.Image
		if n == 0 { // snapshots of a kernel share nothing
			base = i.module.code.Base.Load()
		}
		image, err := snapshot.Take(memory.contents(), base)
		if err == nil && n == 0 && lasting && !image.Shares() {
			i.module.code.Base.Store(image)
		}
		if err == nil {
			s.memories = append(s.memories, image)
			err = memory.adopt(image)
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	i.snapshot = s
	return s, nil
}

// adopt puts a new instance into the state of the snapshot, so that the next call continues from there.
func (i *instance) adopt(s *guestSnapshot) error {
	for n, image := range s.memories {
		if err := i.memories[n].adopt(image); err != nil {
			return err
		}
	}
	i.snapshot, i.tape = s, s.tape
	i.setGlobals()
	return nil
}

// reset restores the snapshot, whatever the guest has done since.
func (i *instance) reset(mode snapshot.Mode) error {
	for n, image := range i.snapshot.memories {
		if err := i.memories[n].reset(mode, image); err != nil {
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

// function returns an exported function. If there is none, the error is a *faultError, since the module was checked to
// export the function.
func (i *instance) function(name string) (api.Function, error) {
	f := i.guest.ExportedFunction(name)
	if f == nil {
		return nil, &faultError{fmt.Errorf("the instance has no function %s", name)}
	}
	return f, nil
}

// parameters is the maximum number of parameters of an export that callExport calls. Haskell's hs_init has two;
// callExport passes zeroes.
const parameters = 2

// callExport calls an export that is not the entry point.
func (i *instance) callExport(name string) error {
	f, err := i.function(name)
	if err == nil {
		i.running = f
		err = f.CallWithStack(i.ctx, make([]uint64, parameters))
	}
	return err
}

// callStartup calls the exports that a handler runs before its first task. It has its own run: what the exports log is
// not in a task's log, and no task finds files that they opened.
func (i *instance) callStartup() error {
	for _, name := range i.startup {
		if err := i.callExport(name); err != nil {
			return err
		}
	}
	return nil
}

// callTask calls the entry point for a task. If that is _start, it first calls the start function of the module, if
// there is one.
func (i *instance) callTask() error {
	i.calls++
	if i.export == startExport && i.module.start {
		if err := i.callExport(wasm.StartExport); err != nil {
			return err
		}
	}
	return i.callEntry()
}

// callEntry calls the entry point, and sets the run's code to the entry point's result, which is 0 for a command.
func (i *instance) callEntry() (err error) {
	if i.entry == nil {
		if i.entry, err = i.function(i.export); err != nil {
			return err
		}
	}
	i.running = i.entry
	err = i.entry.CallWithStack(i.ctx, i.run.result[:])
	if err == nil {
		i.run.code = int(int32(uint32(i.run.result[0])))
	}
	if err != nil || stackOf(i.entry) > maxKeptStack {
		i.entry = nil // this also frees its call stack, which may be large
	}
	return err
}

// maxKeptStack is the largest call stack that an instance keeps between calls, in bytes. Recursion makes it grow to 84
// MB.
const maxKeptStack = 64 << 10

// held returns the bytes that the idle instance takes in addition to its snapshot and code.
func (i *instance) held() int64 {
	bytes := perInstance + i.module.tables + i.pages()
	if i.kernel != nil {
		bytes += perKernel
	}
	return bytes
}

// pages returns the bytes that the memories take in addition to the snapshot.
func (i *instance) pages() (bytes int64) {
	for _, memory := range i.memories {
		bytes += memory.space.Held()
	}
	return bytes
}

// perInstance is the approximate number of bytes that an instance takes on Go's heap, mostly for its call stack.
const perInstance = 32 << 10

// perKernel is the approximate number of bytes that a kernel takes on Go's heap: the host calls four of its functions.
const perKernel = 48 << 10

// close frees everything that the instance takes. The instance must not be running a call.
func (i *instance) close() (err error) {
	if i.guest != nil {
		err = i.guest.Close(i.ctx)
	}
	if i.kernel != nil {
		err = errors.Join(err, i.kernel.Close(i.ctx))
	}
	i.crash.Remove()
	i.module.code.Release()
	for _, memory := range i.memories {
		err = errors.Join(err, memory.release())
	}
	return err
}

func (s *guestSnapshot) close() (err error) {
	if s != nil {
		for _, image := range s.memories {
			err = errors.Join(err, image.Close())
		}
	}
	return err
}

// held returns the maximum number of bytes that the snapshot takes, including its part of the pages that several
// snapshots share.
func (s *guestSnapshot) held() int64 { return s.sum((*snapshot.Image).Held) }

// alone returns the bytes that closing the snapshot frees.
func (s *guestSnapshot) alone() int64 { return s.sum((*snapshot.Image).Alone) }

func (s *guestSnapshot) sum(of func(*snapshot.Image) uint64) (bytes int64) {
	if s != nil {
		for _, image := range s.memories {
			bytes += int64(of(image))
		}
	}
	return bytes
}
