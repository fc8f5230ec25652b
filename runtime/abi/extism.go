package abi

import (
	"cmp"
	"context"
	_ "embed" // kernel.wasm
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
)

const (
	// ExtismModule is the module from which plugins import Extism's functions. Plugins of Extism's 0.x line import them
	// from ExtismOldModule.
	ExtismModule = "extism:host/env"
	// ExtismOldModule is the module from which plugins of the 0.x line import Extism's functions.
	ExtismOldModule = "env"
	// ExtismOldPrefix is the prefix of the functions' names in ExtismOldModule, and in Counters.
	ExtismOldPrefix = "extism_"
	// KernelImports is the module that the kernel imports ExtismFunctions from.
	KernelImports = "quern_extism"
)

// Kernel is the module that exports Extism's functions. It is built from kernel.wat, whose comments say how.
//
//go:embed kernel.wasm
var Kernel []byte

// Blocks gives access to the memory of a kernel, which is divided into blocks of bytes. An offset identifies a block;
// offset 0 means no block. Only one call uses Blocks at a time.
type Blocks struct {
	memory                        api.Memory
	alloc, free, length, setInput api.Function
	ctx                           context.Context //nolint:containedctx // the context of all calls of an instance
	stack                         [1]uint64
}

// NewBlocks returns the blocks of an instance of Kernel, whose functions are called with ctx.
func NewBlocks(ctx context.Context, kernel api.Module) *Blocks {
	return &Blocks{
		memory: kernel.Memory(), ctx: ctx,
		alloc: kernel.ExportedFunction("alloc"), free: kernel.ExportedFunction("free"),
		length: kernel.ExportedFunction("length"), setInput: kernel.ExportedFunction("quern_input_set"),
	}
}

// call calls a function of the kernel that has at most one parameter and at most one result. These functions never
// trap, but some of them call KernelGrow, which can end the guest: call then panics.
func (b *Blocks) call(function api.Function, parameter uint64) uint64 {
	b.stack[0] = parameter
	if err := function.CallWithStack(b.ctx, b.stack[:]); err != nil {
		panic(err)
	}
	return b.stack[0]
}

// add copies a value into a new block, and returns the block's offset. It returns 0 if the value is empty or there is
// no room.
func (b *Blocks) add(value []byte) uint64 {
	at := b.call(b.alloc, uint64(len(value)))
	if at != 0 {
		b.memory.Write(uint32(at), value)
	}
	return at
}

// view returns the bytes of the block at an offset, or no bytes if no block begins there. The bytes are the kernel's
// memory, valid until that memory grows.
func (b *Blocks) view(at uint64) []byte {
	p, _ := b.memory.Read(uint32(at), uint32(b.call(b.length, at)))
	return p
}

// extism is the state of Extism's functions during one call.
type extism struct {
	blocks   *Blocks
	function string // the name of the function that is called
	number   int    // the function's number in Counters
	answer   errno  // the function's result for Counters
	output   struct{ at, length uint64 }
	vars     map[string][]byte // the task's variables, if no bucket keeps them
	held     int               // bytes that vars take: see maxVars
	status   int               // status of the last response
	headers  map[string]string // headers of the last response; nil before the first one
}

// The variables of a task take at most maxVars bytes: their names, their values, and varOverhead for each variable.
// Extism's own hosts have the same limit, but do not count the overhead.
const (
	maxVars     = 1 << 20
	varOverhead = 64 // bytes of a map entry
)

// Exit statuses with which abort ends a guest.
const (
	exitFailed = 1
	exitRetry  = 75
)

// SetBlocks gives the System a kernel's memory, and copies the task's input there. fits is false if there is no room
// for the input. err is set if the guest was ended meanwhile or the host failed.
func (s *System) SetBlocks(b *Blocks) (fits bool, err error) {
	defer func() {
		if p := recover(); p != nil { // call panics, and no call of a guest is running yet that would recover the panic
			err = fmt.Errorf("give a kernel the input: %v", p)
		}
	}()
	s.extism.blocks = b
	at := b.add(s.Input)
	if at == 0 && len(s.Input) > 0 {
		return false, nil
	}
	b.call(b.setInput, at)
	if s.Stage != Initializing {
		s.Counters.count(extismInput, errnoSuccess, len(s.Input))
	}
	return true, nil
}

// WriteOutput appends to the result the bytes that the guest passed to output_set. It returns false if the result would
// exceed its limit.
func (s *System) WriteOutput() bool {
	p, ok := s.extism.blocks.memory.Read(uint32(s.extism.output.at), uint32(s.extism.output.length))
	return !ok || s.Host.Output(p)
}

// ExtismFunctions lists the functions that the kernel imports. All offsets that they take and return are in the
// kernel's memory.
func ExtismFunctions() []Function {
	names := []api.ValueType{i64}
	functions := []Function{
		{"output_set", []api.ValueType{i64, i64}, nil, (*System).extismOutput},
		{"error_set", names, nil, (*System).extismError},
		{"config_get", names, names, (*System).extismConfig},
		{"var_get", names, names, (*System).varGet},
		{"var_set", []api.ValueType{i64, i64}, nil, (*System).varSet},
		{"http_request", []api.ValueType{i64, i64}, names, (*System).extismHTTP},
		{"http_status_code", nil, []api.ValueType{i32}, func(s *System, _ api.Memory,
			a []uint64,
		) {
			a[0] = uint64(s.extism.status)
		}},
		{"http_headers", nil, names, (*System).extismHeaders},
		// 0 is the lowest level: everything is logged
		{"get_log_level", nil, []api.ValueType{i32}, func(_ *System, _ api.Memory, a []uint64) { a[0] = 0 }},
	}
	for level, name := range []string{"log_trace", "log_debug", "log_info", "log_warn", "log_error"} {
		functions = append(functions, Function{name, names, nil, func(s *System, _ api.Memory, a []uint64) {
			line := redact.Prefix(s.extism.blocks.view(a[0]), maxWords)
			s.Reporter.Log(levels[level]+string(s.release(a[0], line)), "")
		}})
	}
	for i, f := range functions {
		functions[i].Call = func(s *System, mem api.Memory, stack []uint64) {
			s.moved, s.extism.function, s.extism.number, s.extism.answer = 0, f.Name, extismFirst+i, errnoSuccess
			f.Call(s, mem, stack)
			s.Counters.count(s.extism.number, s.extism.answer, s.moved)
		}
	}
	return functions
}

// takeBlock copies the bytes of the block at an offset and frees the block, as most functions do with their arguments.
// A block of more than limit bytes ends the guest.
func (s *System) takeBlock(what string, at uint64, limit int) []byte {
	p := s.extism.blocks.view(at)
	if len(p) > limit {
		s.abort(fmt.Errorf("%w: %s has %d bytes, more than %d", service.ErrTooBig, what, len(p), limit))
	}
	return s.release(at, p)
}

// release copies a part of a block, and frees the block.
func (s *System) release(at uint64, part []byte) []byte {
	s.spend(len(part))
	part = append(make([]byte, 0, len(part)), part...)
	s.extism.blocks.call(s.extism.blocks.free, at)
	return part
}

// put copies a value into a new block, and returns the block's offset. A value that does not fit ends the guest.
func (s *System) put(value []byte) uint64 {
	s.spend(len(value))
	at := s.extism.blocks.add(value)
	if at == 0 && len(value) > 0 {
		s.abort(fmt.Errorf("%w: no memory for %d bytes", service.ErrLimit, len(value)))
	}
	return at
}

// putFound is put for a value that was looked up. It returns 0 if the value was not found.
func (s *System) putFound(value []byte, found bool) uint64 {
	if !found {
		s.extism.answer = errnoNotFound
		return 0
	}
	return s.put(value)
}

// abort reports the error and ends the guest, because Extism's functions cannot return errors. If a service other than
// HTTP is unavailable, the task is retried. An error that no guest can cause is a fault of the host.
func (s *System) abort(err error) {
	answer := s.refuse(s.extism.function, err)
	s.Counters.count(s.extism.number, answer, s.moved)
	s.failure, s.failed = []byte(s.Reporter.Refused(s.extism.function, err)), true
	if answer == errnoUnavailable && s.extism.function != "http_request" {
		s.Host.Exit(exitRetry)
	}
	s.Host.Exit(exitFailed)
}

// needTask ends the guest if there is no task: a value that the guest got now would become part of the snapshot.
func (s *System) needTask() {
	if !s.allows(s.extism.function, effect) {
		s.abort(fmt.Errorf("%w: not before a task", service.ErrInvalid))
	}
}

// extismOutput implements output_set(offset, length). As in Extism, a range outside memory is ignored.
func (s *System) extismOutput(_ api.Memory, a []uint64) {
	size := uint64(s.extism.blocks.memory.Size())
	if a[0] <= size && a[1] <= size-a[0] {
		s.spend(int(a[1]))
		s.extism.output.at, s.extism.output.length = a[0], a[1]
	}
}

// extismError implements error_set(block). After this call the task has failed, whatever the guest returns.
func (s *System) extismError(_ api.Memory, a []uint64) {
	p := redact.Prefix(s.extism.blocks.view(a[0]), maxError)
	s.spend(len(p))
	s.failure, s.failed = append([]byte{}, p...), true
}

// extismConfig implements config_get(name), which returns 0 if there is no setting of that name. It does not free the
// block of the name.
func (s *System) extismConfig(_ api.Memory, a []uint64) {
	name := s.extism.blocks.view(a[0])
	s.spend(len(name))
	value, ok := s.Services.Config[string(name)]
	a[0] = s.putFound([]byte(value), ok)
}

// varGet implements var_get(name), which returns 0 if there is no variable of that name.
func (s *System) varGet(_ api.Memory, a []uint64) {
	s.needTask()
	name := string(s.takeBlock("the name", a[0], maxName))
	value, found := s.extism.vars[name]
	if s.Services.Vars {
		err := s.inBucket(func(ctx context.Context) (err error) {
			value, err = s.Services.KV.Get(ctx, service.VarsBucket, name)
			return err
		})
		if found = err == nil; !found && !errors.Is(err, service.ErrNotFound) {
			s.abort(err)
		}
	}
	a[0] = s.putFound(value, found)
}

// varSet implements var_set(name, value). If the value's offset is 0, the variable is deleted.
func (s *System) varSet(_ api.Memory, a []uint64) {
	s.needTask()
	name, remove := string(s.takeBlock("the name", a[0], maxName)), a[1] == 0
	value := s.takeBlock("the value", a[1], maxValue)
	if !s.Services.Vars {
		s.keepVar(name, value, remove)
		return
	}
	err := s.inBucket(func(ctx context.Context) error {
		if remove {
			_, err := s.Services.KV.Delete(ctx, service.VarsBucket, name)
			return err
		}
		return s.Services.KV.Set(ctx, service.VarsBucket, name, value, 0)
	})
	if err != nil {
		s.abort(err)
	}
}

// inBucket runs call, which uses the bucket that keeps variables. It returns ErrDenied if there is no key-value store.
func (s *System) inBucket(call func(ctx context.Context) error) error {
	err := fmt.Errorf("%w: there is no store here", service.ErrDenied)
	if s.Services.KV != nil {
		s.Host.Do(func(ctx context.Context) { err = call(ctx) })
	}
	return err
}

// keepVar sets or removes a variable that lasts only as long as the task.
func (s *System) keepVar(name string, value []byte, remove bool) {
	if old, ok := s.extism.vars[name]; ok {
		s.extism.held -= len(name) + len(old) + varOverhead
		delete(s.extism.vars, name)
	}
	if remove {
		return
	}
	if s.extism.held += len(name) + len(value) + varOverhead; s.extism.held > maxVars {
		s.abort(fmt.Errorf("%w: variables of a task take at most 1 MiB; grant the bucket %s for more", service.ErrTooBig,
			service.VarsBucket))
	}
	if s.extism.vars == nil {
		s.extism.vars = map[string][]byte{}
	}
	s.extism.vars[name] = value
}

// extismHTTP implements http_request(request, body), which returns a block with the body of the response, 0 if the body
// is empty.
func (s *System) extismHTTP(_ api.Memory, a []uint64) {
	s.needTask()
	s.extism.status, s.extism.headers = 0, nil
	head, body := s.takeBlock("the request", a[0], maxHead), s.takeBlock("the body", a[1], maxBody)
	s.charge(jsonPrice * len(head))
	var fields struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Header  map[string]string `json:"header"` // used by the 0.x line
		Headers map[string]string `json:"headers"`
	}
	if json.Unmarshal(head, &fields) != nil || fields.URL == "" {
		s.abort(fmt.Errorf(`%w: the request is not like {"url": "https://example.com", "method": "GET", "headers": {"accept": "text/plain"}}`,
			service.ErrInvalid))
	}
	request := service.Request{
		URL: fields.URL, Method: strings.ToUpper(cmp.Or(fields.Method, "GET")), Headers: map[string][]string{}, Body: body,
		Trace: s.Task.Headers,
	}
	for _, headers := range []map[string]string{fields.Header, fields.Headers} {
		for name, value := range headers {
			request.Headers[name] = []string{value}
		}
	}
	var response service.Response
	err := fmt.Errorf("%w: there is no HTTP here", service.ErrDenied)
	if s.Services.HTTP != nil {
		s.Host.Do(func(ctx context.Context) { response, err = s.Services.HTTP.Do(ctx, request) })
	}
	if err != nil {
		s.abort(err)
	}
	s.extism.status, s.extism.headers = response.Status, map[string]string{}
	for name, values := range response.Headers {
		s.extism.headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	a[0] = s.put(response.Body)
}

// extismHeaders implements http_headers(), which returns a block with the headers of the last response as JSON, 0
// before the first response.
func (s *System) extismHeaders(_ api.Memory, a []uint64) {
	if a[0] = 0; s.extism.headers != nil {
		text, _ := json.Marshal(s.extism.headers) // strings cannot fail
		s.charge(jsonPrice * len(text))
		a[0] = s.put(text)
	}
}

// KernelGrow returns the function by which a kernel grows its memory. It is a host function, because the guest pays for
// calls of host functions.
func KernelGrow() Function {
	return Function{"grow", []api.ValueType{i32}, []api.ValueType{i32}, func(_ *System, mem api.Memory, a []uint64) {
		before, ok := mem.Grow(uint32(a[0]))
		if a[0] = uint64(before); !ok {
			a[0] = math.MaxUint32 // -1
		}
	}}
}
