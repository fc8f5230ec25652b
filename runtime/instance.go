package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// instance is a module with memory, globals and tables of its own. One run uses it at a time; what a run
// leaves on the host's side hangs on the run.
type instance struct {
	code    *code // holds it
	tables  int64 // bytes that its tables take at most
	guest   api.Module
	memory  memory
	counter api.MutableGlobal
	crash   *crash.Entry        // tells a monitor whose it is
	globals []api.MutableGlobal // those that the guest can change
	image   *image              // that it begins in; nil if it is not used again
	entry   api.Function        // nil until it is called first, and after it has ended badly

	ctx     context.Context //nolint:containedctx // of all calls of the guest: it leads to the instance
	run     *run            // that it is used by
	running api.Function    // that the run has called last
	calls   int             // that it has served
	begun   expense         // what coming to its first task took, of a module whose tasks bear that
}

// instanceKey is the key of the instance in the context of its calls.
type instanceKey struct{}

// instanceConfig is that of every instance: it has no name, so that there may be any number, and nothing of
// it runs when it is made.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// instantiate makes an instance whose memory grows to the limit at most. It takes over a hold of the code: what
// it returns is closed, else the hold is given back. An error that is a *faultError is the host's, any other
// the module's.
func (m *Module) instantiate(limit int64) (i *instance, err error) {
	i = &instance{code: m.code, tables: m.tables, memory: memory{limit: uint64(limit), declared: m.declared}}
	i.ctx = context.WithValue(context.Background(), instanceKey{}, i)
	defer func() {
		// wazero panics if it gets no memory, and recovers what is below a call only.
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
	m.engine.guard(i)
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

// guard tells a monitor where the instance's memory lies, and once the log if it has no guards.
func (e *Engine) guard(i *instance) {
	var addresses []byte
	if space := i.memory.space; space != nil {
		addresses = space.Addresses()
		if !space.Guarded() && len(addresses) > 0 {
			e.bare.Do(func() {
				e.logger.Warn("memories of plugins have no guards, which take 8 GiB of addresses each: raise the limit on address space (ulimit -v), or serve fewer plugins")
			})
		}
	}
	i.crash = e.crash.Add(addresses)
}

func (i *instance) global(name string) (api.MutableGlobal, error) {
	global, ok := i.guest.ExportedGlobal(name).(api.MutableGlobal)
	if !ok {
		return nil, &faultError{fmt.Errorf("the instance has no global %s", name)}
	}
	return global, nil
}

// image is the state that instances begin in.
type image struct {
	memory  *snapshot.Image // nil of a module without memory
	globals []uint64
}

// capture makes an image of the instance, which goes on as one that was made from it.
func (i *instance) capture() (img *image, err error) {
	img = &image{}
	for _, global := range i.globals {
		img.globals = append(img.globals, global.Get())
	}
	if i.memory.space != nil {
		if img.memory, err = snapshot.Take(i.memory.contents()); err != nil {
			return nil, err
		}
		if err := i.memory.adopt(img.memory); err != nil {
			return nil, errors.Join(err, img.close())
		}
	}
	i.image = img
	return img, nil
}

// adopt makes a new instance one that was made from the image.
func (i *instance) adopt(img *image) error {
	if img.memory != nil {
		missing := uint32((img.memory.Size() - i.memory.size) / wasm.PageSize)
		if _, ok := i.guest.Memory().Grow(missing); !ok {
			return fmt.Errorf("memory does not grow to the %d bytes of its image", img.memory.Size())
		}
		if err := i.memory.adopt(img.memory); err != nil {
			return err
		}
	}
	i.image = img
	i.setGlobals()
	return nil
}

// reset makes the instance what its image is, whatever a guest did meanwhile.
func (i *instance) reset(mode snapshot.Mode) error {
	if img := i.image.memory; img != nil {
		if err := i.memory.reset(mode, img); err != nil {
			return err
		}
		if err := i.shrink(img.Size()); err != nil {
			return err
		}
	}
	i.setGlobals()
	return nil
}

func (i *instance) setGlobals() {
	for n, global := range i.globals {
		global.Set(i.image.globals[n])
	}
}

// shrink takes grown memory from the guest. wazero knows no such thing, but takes what the allocator gives it:
// memory grows by a page, for which the rewritten module's maximum always has room, and gets what it is to
// have.
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

// held is what the instance takes in bytes beside its image and code, while no call uses it.
func (i *instance) held() int64 {
	bytes := perInstance + i.tables
	if i.memory.space != nil {
		bytes += i.memory.space.Held()
	}
	return bytes
}

// perInstance is what wazero and we keep for an instance on Go's heap, about; most is its call stack.
const perInstance = 32 << 10

// close gives back all that the instance takes. Nothing may run in it any more.
func (i *instance) close() error {
	var err error
	if i.guest != nil {
		err = i.guest.Close(i.ctx)
	}
	i.crash.Remove()
	err = errors.Join(err, i.memory.release())
	i.code.release()
	return err
}

func (img *image) close() error {
	if img == nil || img.memory == nil {
		return nil
	}
	return img.memory.Close()
}

// held is the most that the image takes in bytes.
func (img *image) held() int64 {
	if img == nil || img.memory == nil {
		return 0
	}
	return int64(img.memory.Size())
}
