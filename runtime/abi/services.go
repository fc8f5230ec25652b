package abi

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/service"
)

// Maximum sizes of the arguments that a guest passes, in bytes.
const (
	maxCheckpoint = 1 << 20
	maxName       = 4 << 10 // name of a bucket, a key or a setting; services have lower limits
	maxValue      = 1 << 20 // services have lower limits
	maxBody       = service.MaxBody
)

// ask calls a service and returns its result. If the service fails, ask returns the errno for its error. If an argument
// is wrong or the service is not granted, ask does not call the service, and returns the argument's errno or EDENIED.
func ask[T any](a *reader, function string, granted bool,
	call func(ctx context.Context) (T, error),
) (result T, answer errno) {
	if a.wrong != errnoSuccess {
		return result, a.wrong
	}
	if !granted {
		return result, a.system.refuse(function, fmt.Errorf("%w: the manifest grants no %s, or there is none here",
			service.ErrDenied, function))
	}
	var err error
	a.system.Host.Do(func(ctx context.Context) { result, err = call(ctx) })
	if err != nil {
		return result, a.system.refuse(function, err)
	}
	return result, errnoSuccess
}

// fetch calls a service as ask does, and fills the slot with the value that the service returns.
func fetch(a *reader, function string, granted bool, call func(ctx context.Context) ([]byte, error)) errno {
	value, answer := ask(a, function, granted, call)
	if answer != errnoSuccess {
		return answer
	}
	return a.system.fillBytes(value)
}

// explained are the refusals whose reasons the plugin's owner gets.
var explained = []errno{errnoInval, errnoDenied, errnoQuota, errnoUnavailable, errnoLimit}

// refuse returns the errno for a service's error. If the plugin's owner can act on the error, refuse stores it in
// s.reason, which the caller reports. An error that no guest can cause ends the guest as a fault of the host.
func (s *System) refuse(function string, err error) errno {
	answer, known := meaning(err)
	switch {
	case !known:
		s.Host.Fail(fmt.Errorf("%s.%s: %w", ModuleName, function, err))
	case slices.Contains(explained, answer):
		s.reason = err
	}
	return answer
}

// invalid records why an argument is invalid, and returns EINVAL.
func (s *System) invalid(format string, a ...any) errno {
	s.reason = fmt.Errorf("%w: "+format, append([]any{service.ErrInvalid}, a...)...)
	return errnoInval
}

// fillBytes charges for a value and fills the slot with it, without a copy: the value must not change any more.
func (s *System) fillBytes(value []byte) errno {
	s.spend(len(value))
	return s.fill(unsafe.String(unsafe.SliceData(value), len(value)))
}

// checkpointSave implements checkpoint_save(value, length).
func (s *System) checkpointSave(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	value := in.bytes(maxCheckpoint)
	_, answer := ask(in, "checkpoint_save", s.Services.Checkpoint != nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Services.Checkpoint.Save(ctx, value)
	})
	if answer == errnoSuccess {
		s.Checkpoint = value
	}
	return answer
}

// checkpointLoad implements checkpoint_load(), which fills the slot. A checkpoint can be empty: only a missing one is
// ENOTFOUND.
func (s *System) checkpointLoad(api.Memory, []uint64) errno {
	if s.Checkpoint == nil {
		return errnoNotFound
	}
	return s.fillBytes(s.Checkpoint)
}

// dependencies fills the slot with the tasks that this task waited for. Each is a line "ID END"; END says how the task
// ended, as in service.Dependency.
func (s *System) dependencies(in *reader) errno {
	return fetch(in, "task_text", s.Services.Dependencies != nil, func(ctx context.Context) (text []byte, err error) {
		list, err := s.Services.Dependencies.List(ctx)
		for _, d := range list {
			text = append(append(append(append(text, d.ID...), ' '), d.End...), '\n')
		}
		return text, err
	})
}

// dependencyResult implements dependency_result(id, length), which fills the slot. Where there is no result, the field
// with the last refusal says why.
func (s *System) dependencyResult(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	id := in.name()
	var err error
	answer := fetch(in, "dependency_result", s.Services.Dependencies != nil, func(ctx context.Context) ([]byte, error) {
		var result []byte
		result, err = s.Services.Dependencies.Result(ctx, id)
		return result, err
	})
	if answer == errnoNotFound { // it is no refusal, so the task's log does not have it
		why := err.Error()
		s.spend(len(why))
		s.refusal = strings.TrimPrefix(why, service.ErrNotFound.Error()+": ")
	}
	return answer
}

// configGet implements config_get(name, length), which fills the slot.
func (s *System) configGet(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	name := in.name()
	if in.wrong != errnoSuccess {
		return in.wrong
	}
	value, ok := s.Services.Config[name]
	if !ok {
		return errnoNotFound
	}
	return s.fill(value)
}

// secretGet implements secret_get(name, length), which fills the slot.
func (s *System) secretGet(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	name := in.name()
	value, answer := ask(in, "secret_get", s.Services.Secrets != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.Secrets.Secret(ctx, name)
	})
	if answer != errnoSuccess {
		return answer
	}
	s.Reporter.Reveal(name, value)
	return s.fillBytes(value)
}

// kvGet implements kv_get(bucket, length, key, length), which fills the slot.
func (s *System) kvGet(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, key := in.name(), in.name()
	return fetch(in, "kv_get", s.Services.KV != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.KV.Get(ctx, bucket, key)
	})
}

// lifetime reads a parameter, the lifetime of a value in milliseconds. 0 means that the value lasts until it is
// deleted.
func (a *reader) lifetime() time.Duration {
	ms := int64(a.number())
	if ms < 0 && a.wrong == errnoSuccess {
		a.wrong = a.system.invalid("a ttl of %d ms: use 0, for ever, or more", ms)
	}
	return time.Duration(min(ms, maxLifetime.Milliseconds())) * time.Millisecond
}

// maxLifetime is the maximum lifetime of a value. A guest's longer lifetime is cut to it.
const maxLifetime = 100 * 365 * 24 * time.Hour

// kvSet implements kv_set(bucket, length, key, length, value, length, ttl).
func (s *System) kvSet(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, key, value, ttl := in.name(), in.name(), in.bytes(maxValue), in.lifetime()
	_, answer := ask(in, "kv_set", s.Services.KV != nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Services.KV.Set(ctx, bucket, key, value, ttl)
	})
	return answer
}

// kvDelete implements kv_delete(bucket, length, key, length). It returns 1 if there was a value.
func (s *System) kvDelete(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, key := in.name(), in.name()
	existed, answer := ask(in, "kv_delete", s.Services.KV != nil, func(ctx context.Context) (bool, error) {
		return s.Services.KV.Delete(ctx, bucket, key)
	})
	if answer == errnoSuccess && existed {
		return 1
	}
	return answer
}

// kvIncrement implements kv_increment(bucket, length, key, length, delta, result number). It checks the result's
// address before it changes the value.
func (s *System) kvIncrement(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, key, delta, to := in.name(), in.name(), int64(in.number()), in.number()
	if _, ok := view(mem, to, 8); !ok {
		in.wrong = cmp.Or(in.wrong, errnoFault)
	}
	sum, answer := ask(in, "kv_increment", s.Services.KV != nil, func(ctx context.Context) (int64, error) {
		return s.Services.KV.Increment(ctx, bucket, key, delta)
	})
	if answer != errnoSuccess {
		return answer
	}
	return put64(mem, to, sum)
}

// absent is passed as the length of the old value by a guest that expects no value.
const absent = math.MaxUint32

// kvSwap implements kv_swap(bucket, length, key, length, old, length, value, length, ttl). If the present value is not
// the old value, kv_swap returns ECONFLICT and fills the slot with the present value. If there is no present value, it
// returns ENOTFOUND.
func (s *System) kvSwap(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, key := in.name(), in.name()
	var old []byte
	if uint32(a[5]) == absent {
		in.rest = in.rest[2:]
	} else {
		old = in.bytes(maxValue)
	}
	value, ttl := in.bytes(maxValue), in.lifetime()
	present, answer := ask(in, "kv_swap", s.Services.KV != nil, func(ctx context.Context) ([]byte, error) {
		return s.Services.KV.Swap(ctx, bucket, key, old, value, ttl)
	})
	switch {
	case answer == errnoConflict && present == nil:
		return errnoNotFound
	case answer == errnoConflict:
		s.fillBytes(present)
	}
	return answer
}

// kvList implements kv_list(bucket, length, prefix, length, after, length, limit), which fills the slot with the keys,
// each preceded by its length in 4 bytes.
func (s *System) kvList(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	bucket, prefix, after, limit := in.name(), in.name(), in.name(), int32(uint32(in.number()))
	return fetch(in, "kv_list", s.Services.KV != nil, func(ctx context.Context) (list []byte, err error) {
		keys, err := s.Services.KV.List(ctx, bucket, prefix, after, int(limit))
		for _, key := range keys {
			list = binary.LittleEndian.AppendUint32(list, uint32(len(key)))
			list = append(list, key...)
		}
		return list, err
	})
}

// http implements http(head, length, body, length), which fills the slot with the length of the response's head in 4
// bytes, the head, and the body.
func (s *System) http(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	head, body := in.bytes(maxHead), in.bytes(maxBody)
	if in.wrong != errnoSuccess {
		return in.wrong
	}
	s.charge(jsonPrice * len(head))
	request, err := parseRequest(head)
	if err != nil {
		return s.invalid("%w", err)
	}
	request.Body, request.Trace = body, s.Task.Headers
	response, answer := ask(in, "http", s.Services.HTTP != nil, func(ctx context.Context) (service.Response, error) {
		return s.Services.HTTP.Do(ctx, request)
	})
	if answer != errnoSuccess {
		return answer
	}
	bytes := formatResponse(response)
	s.charge(jsonPrice * (len(bytes) - len(response.Body)))
	return s.fillBytes(bytes)
}
