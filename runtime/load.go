package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasm"
)

// Load compiles a module and checks that it can be served; if not, the error is a *RefusedError with every reason that
// was found. The binary is not kept.
func (e *Engine) Load(ctx context.Context, binary []byte) (*Module, error) {
	d, err := e.Decode(binary, nil)
	if err != nil {
		return nil, err
	}
	return d.Load(ctx, "")
}

// Inspect loads a module as Load does, closes it, and returns its description. With an error, Info has what could be
// read of the file.
func (e *Engine) Inspect(ctx context.Context, binary []byte) (Info, error) {
	d, err := e.Decode(binary, nil)
	if err != nil {
		return d.info, err
	}
	m, err := d.Load(ctx, "")
	if err == nil {
		err = m.Close(ctx)
	}
	return d.info, err
}

// Decoded is a module that was checked and rewritten, but not compiled yet.
type Decoded struct {
	engine *Engine
	info   Info
	module *wasm.Rewritten // without its binary
	code   *compile.Code
	files  []*Files // the files that the module carries, by section
}

// Decode does the part of Load that waits for nobody else: it checks and rewrites the module, with the cheap checks
// first. The caller then calls Decoded.Load. The result keeps nothing as large as the binary, except the files that the
// module carries. Before Decode unpacks these files, it calls reserve with the bytes that they take. If reserve returns
// false, the error wraps bundle.ErrNoRoom. A nil reserve allows any size. With an error, the result holds only an Info,
// with what could be read of the file.
func (e *Engine) Decode(binary []byte, reserve func(bytes int64) bool) (*Decoded, error) {
	d := &Decoded{engine: e, info: Info{Digest: DigestOf(binary), Size: int64(len(binary))}}
	info := &d.info
	if refused := sniff(binary); refused != nil {
		return d, refused
	}
	rewritten, damaged := decode(binary)
	outline := &rewritten.Outline
	info.describe(rewritten)
	if damaged != nil {
		return d, &RefusedError{Refusals: append(foreign(outline), damaged.Refusals...)}
	}
	info.Kind = kindOf(outline)
	if found := refusals(info.Kind, outline); len(found) > 0 {
		return d, &RefusedError{Refusals: found}
	}
	info.describeEntry(outline)
	info.ResetMode, info.ResetReason = e.resetMode, e.resetReason
	if why := whyNew(outline); why != "" {
		info.ResetMode, info.ResetReason = ResetNew, why
	}
	var err error
	if d.files, err = e.bundles.read(binary, reserve); err != nil {
		return d, err
	}
	for _, files := range d.files {
		contents := files.Contents()
		for _, path := range slices.Sorted(maps.Keys(contents)) {
			info.Files = append(info.Files, CarriedFile{path, int64(len(contents[path]))})
		}
	}
	d.code = e.cache.Code(rewritten, info.Kind == Extism)
	d.module, rewritten.Binary = rewritten, nil
	return d, nil
}

// Load compiles the module when it is the owner's turn, and checks that the module can be instantiated. Owners take
// turns, so that many large modules of one owner do not delay the modules of another. Load can be called only once. It
// never executes code of the file.
func (d *Decoded) Load(ctx context.Context, owner string) (*Module, error) {
	if err := d.code.Hold(ctx, owner, d.info.Digest); err != nil {
		if bad, ok := errors.AsType[*compile.Error](err); ok {
			err = refuse(bad.Reason, "", bad.Remedy)
		}
		return nil, errors.Join(err, d.code.Close(ctx))
	}
	e := d.engine
	m := newModule(e.host, d, owner)
	m.onClose = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.modules, m)
	}
	e.mu.Lock()
	e.modules[m] = struct{}{}
	e.mu.Unlock()
	leave, err := e.cache.LoadTurn(ctx, owner, 0)
	if err == nil {
		err = m.try()
		leave()
	} else {
		d.code.Release() // otherwise try releases it
	}
	if err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}

// newModule makes the Module of a decoded module whose code is loaded.
func newModule(h *host, d *Decoded, owner string) *Module {
	info, rewritten := d.info, d.module
	m := &Module{
		host: h, code: d.code, owner: owner, name: d.code.Name(), info: info, bundled: d.files,
		names:   int64(rewritten.NameBytes),
		mutable: rewritten.Mutable, declared: MaxMemory, start: rewritten.Start,
		perTask: whyNew(&rewritten.Outline) != "",
		price:   rewritten.InstancePrice, tables: rewritten.TableMemory,
		pools: map[*Pool]struct{}{},
	}
	if info.MemoryMax > 0 || len(rewritten.Memories) > 0 && rewritten.Memories[0].HasMax {
		m.declared = uint64(info.MemoryMax)
	}
	// With a parameter the export belongs to Go, whose frames are its user's.
	where, ok := rewritten.Export(wasm.WhereExport)
	m.answers = ok && where.Signature.String() == "() -> (i32)"
	if m.start {
		m.startup = append(m.startup, wasm.StartExport)
	}
	m.startup = append(m.startup, startup(info.Kind, &rewritten.Outline)...)
	for _, files := range m.bundled {
		m.files = files.Over(m.files)
	}
	m.touch(time.Now())
	return m
}

// try makes an instance and closes it, since only instantiation shows whether the module's segments fit into its
// memory. No code of the module runs. The instance takes over the caller's hold of the code.
func (m *Module) try() error {
	i, err := m.instantiate(max(m.info.MemoryMin, wasm.PageSize))
	if err == nil {
		return i.close()
	}
	if fault, ok := errors.AsType[*faultError](err); ok {
		return fmt.Errorf("try module %q: %w", m.info.Digest, fault.err)
	}
	return refuse("the module cannot be instantiated: "+redact.Label(redact.FirstLine(err.Error())), "", "build it again")
}
