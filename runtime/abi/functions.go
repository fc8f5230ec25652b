package abi

import (
	"errors"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/service"
)

// ModuleName is the name of the module from which guests import the functions of quern_v1.
const ModuleName = "quern_v1"

// Function is a function that guests can import. Call reads its parameters from the stack and leaves its results there;
// mem is the guest's memory.
type Function struct {
	Name            string
	Params, Results []api.ValueType
	Call            func(s *System, mem api.Memory, stack []uint64)
}

// The names of the function that a standalone module of Emscripten calls when its memory has grown. It passes the
// memory's index; the host need not do anything.
const (
	EmscriptenModule = "env"
	EmscriptenGrowth = "emscripten_notify_memory_growth"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64
)

// need is the requirement of a function. The stage of the guest decides whether it is met.
type need int

const (
	nothing     need = iota
	call             // a call of the handler, with or without a task
	description      // a task, which the function describes
	effect           // a task: the function acts outside the guest, or its result must not be in a snapshot
	slot             // a slot that another function has filled
)

// Functions lists the functions of quern_v1.
func Functions() []Function {
	functions := []Function{
		answering("result_read", slot, (*System).resultRead, i32, i32, i32),
		answering("result_size", slot, (*System).resultSize),
		answering("input_size", call, (*System).inputSize),
		answering("input_read", call, (*System).inputRead, i32, i32, i32),
		answering("output_write", call, (*System).outputWrite, i32, i32),
		answering("error_set", call, (*System).errorSet, i32, i32),
		answering("retry_after", call, (*System).setRetryAfter, i64),
		answering("task_text", description, (*System).taskText, i32),
		answering("task_number", description, (*System).taskNumber, i32, i32),
		answering("cancelled", call, (*System).cancelled),
		answering("log", nothing, (*System).log, i32, i32, i32, i32, i32),
		answering("progress", effect, (*System).progress, f64, i32, i32),
		answering("checkpoint_save", effect, (*System).checkpointSave, i32, i32),
		answering("checkpoint_load", effect, (*System).checkpointLoad),
		answering("enqueue", effect, (*System).enqueue, i32, i32, i32, i32, i32, i32),
		answering("dependency_result", effect, (*System).dependencyResult, i32, i32),
		answering("kv_get", effect, (*System).kvGet, i32, i32, i32, i32),
		answering("kv_set", effect, (*System).kvSet, i32, i32, i32, i32, i32, i32, i64),
		answering("kv_delete", effect, (*System).kvDelete, i32, i32, i32, i32),
		answering("kv_increment", effect, (*System).kvIncrement, i32, i32, i32, i32, i64, i32),
		answering("kv_swap", effect, (*System).kvSwap, i32, i32, i32, i32, i32, i32, i32, i32, i64),
		answering("kv_list", effect, (*System).kvList, i32, i32, i32, i32, i32, i32, i32),
		answering("http", effect, (*System).http, i32, i32, i32, i32),
		answering("sql", effect, (*System).sql, i32, i32, i32, i32, i32, i32),
		answering("sql_commit", effect, (*System).sqlCommit, i32, i32, i32, i32, i32, i32),
		answering("sql_rollback", effect, (*System).sqlRollback, i32, i32),
		answering("sql_step", effect, (*System).sqlStep, i32, i32, i32, i32),
		answering("config_get", nothing, (*System).configGet, i32, i32),
		answering("secret_get", effect, (*System).secretGet, i32, i32),
		answering("clock", nothing, (*System).clock, i32, i32),
		answering("sleep", call, (*System).sleep, i64),
		answering("random", nothing, (*System).random, i32, i32),
	}
	for number, f := range functions {
		functions[number].Call = func(s *System, mem api.Memory, stack []uint64) {
			s.moved, s.reason, s.called = 0, nil, f.Name
			f.Call(s, mem, stack)
			if s.reason != nil {
				report := s.Reporter.Refused(s.called, s.reason)
				s.refusal = strings.TrimPrefix(report, ModuleName+"."+s.called+": ")
				if s.denial = ""; errors.Is(s.reason, service.ErrDenied) {
					s.denial = s.called + ": " + s.refusal
				}
			}
			s.Counters.count(number, errno(int32(uint32(stack[0]))), s.moved)
		}
	}
	return functions
}

// answering makes a Function whose only result is an errno. It returns ESTATE if the guest's stage lacks what the
// function needs.
func answering(name string, needs need, f func(*System, api.Memory, []uint64) errno, params ...api.ValueType) Function {
	return Function{
		Name:    name,
		Params:  params,
		Results: []api.ValueType{i32},
		Call: func(s *System, mem api.Memory, stack []uint64) {
			answer := errnoState
			if s.allows(name, needs) {
				answer = f(s, mem, stack[:len(params)])
			}
			stack[0] = uint64(uint32(answer))
		},
	}
}

// allows reports whether a function works in the guest's stage. It records the first function that is refused in
// Warming, unless that function only describes the task.
func (s *System) allows(name string, needs need) bool {
	switch {
	case s.Stage == Running || needs == nothing || needs == slot && s.filled:
		return true
	case s.Stage == Initializing || needs == description:
		return false
	case needs == call:
		return true
	}
	if s.misused == "" {
		s.misused = name
	}
	return false
}
