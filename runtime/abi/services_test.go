package abi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/service"
)

const testHead = `{"method":"POST","url":"https://example.com/","headers":{"Accept":"a","X-Two":["1","2"]},"timeout_ms":1500}`

const testOptions = `{"id":"i","key":"k","labels":{"a":"b"},"priority":0,"delay_ms":5000,"at_ms":1700000000000,"max_attempts":3,` +
	`"timeout_ms":60000,"unique":{"key":"u","for_ms":1000}}`

// What overflows a time of Go.
const (
	testFarOptions    = `{"at_ms":9223372036854775807}`
	testBeyondOptions = `{"delay_ms":-9223372036854775808,"timeout_ms":9223372036854775807}`
)

// fakeServices answer what the test says, and keep what they were asked. It is not the services that are tested with it
// but what guests make of them.
type fakeServices struct {
	calls []string
	err   error
	bytes []byte
}

func (f *fakeServices) set() service.Services {
	return service.Services{Checkpoint: f, KV: f, HTTP: f, Secrets: f, SQL: f, Enqueue: f, Dependencies: fakeDependencies{f}, Config: map[string]string{"bb": "configured", "empty": ""}}
}

// fakeDependencies are the dependencies of fakeServices.
type fakeDependencies struct{ *fakeServices }

func (f fakeDependencies) List(context.Context) ([]service.Dependency, error) {
	f.called("dependencies")
	return []service.Dependency{{ID: "a", End: "complete"}, {ID: "b", End: "waiting"}}, f.err
}

func (f fakeDependencies) Result(_ context.Context, id string) ([]byte, error) {
	f.called("result %q", id)
	return f.bytes, f.err
}

func (f *fakeServices) called(format string, a ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
}

func (f *fakeServices) Save(_ context.Context, value []byte) error {
	f.called("save %q", value)
	return f.err
}

func (f *fakeServices) Enqueue(_ context.Context, c service.Child) (string, error) {
	text := fmt.Sprintf("%s %q %s %s %v %s %s %d %s", c.Queue, c.Body, c.ID, c.Key, c.Labels, c.Delay, c.At.UTC().Format(time.DateTime), c.MaxAttempts, c.Timeout)
	if c.Priority != nil {
		text += fmt.Sprintf(" priority %d", *c.Priority)
	}
	if c.Unique != nil {
		text += fmt.Sprintf(" unique %q %s", c.Unique.Key, c.Unique.For)
	}
	f.called("enqueue %s", text)
	return string(f.bytes), f.err
}

func (f *fakeServices) Secret(_ context.Context, name string) ([]byte, error) {
	f.called("secret %q", name)
	return f.bytes, f.err
}

func (f *fakeServices) Query(_ context.Context, database, statement string, parameters []service.SQLValue) ([]byte, error) {
	f.called("query %q %q %q", database, statement, parameters)
	return f.bytes, f.err
}

func (f *fakeServices) Commit(_ context.Context, database, step string, value []byte) ([]byte, error) {
	f.called("commit %q %q %q", database, step, value)
	return f.bytes, f.err
}

func (f *fakeServices) Rollback(_ context.Context, database string) error {
	f.called("rollback %q", database)
	return f.err
}

func (f *fakeServices) Step(_ context.Context, database, step string) ([]byte, error) {
	f.called("step %q %q", database, step)
	return f.bytes, f.err
}

func (f *fakeServices) Get(_ context.Context, bucket, key string) ([]byte, error) {
	f.called("get %q %q", bucket, key)
	return f.bytes, f.err
}

func (f *fakeServices) Set(_ context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	f.called("set %q %q %q %s", bucket, key, value, ttl)
	return f.err
}

func (f *fakeServices) Delete(_ context.Context, bucket, key string) (bool, error) {
	f.called("delete %q %q", bucket, key)
	return f.bytes != nil, f.err
}

func (f *fakeServices) Increment(_ context.Context, bucket, key string, delta int64) (int64, error) {
	f.called("increment %q %q %d", bucket, key, delta)
	return delta + 1, f.err
}

func (f *fakeServices) Swap(_ context.Context, bucket, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	f.called("swap %q %q %q %v %q %s", bucket, key, old, old == nil, value, ttl)
	return f.bytes, f.err
}

func (f *fakeServices) List(_ context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	f.called("list %q %q %q %d", bucket, prefix, after, limit)
	return []string{"one", "", "three"}, f.err
}

func (f *fakeServices) Do(_ context.Context, r service.Request) (service.Response, error) {
	f.called("http %s %s %v %q %s", r.Method, r.URL, r.Headers, r.Body, r.Timeout)
	return service.Response{Status: 201, Headers: map[string][]string{"X-A": {"1", "2"}}, Body: []byte("the body")}, f.err
}

// TestServices: each function hands on what the guest said, and answers what the service did.
func TestServices(t *testing.T) {
	t.Parallel()
	const head = `{"status":201,"headers":{"x-a":["1","2"]}}`
	for name, tt := range map[string]struct {
		function string
		a        []uint64
		want     errno
		asked    string
		slot     string // what it holds then
	}{
		"Save":        {"checkpoint_save", []uint64{0, 6}, 0, `save "bucket"`, ""},
		"SaveNothing": {"checkpoint_save", []uint64{1 << 31, 0}, 0, `save ""`, ""},
		"Load":        {"checkpoint_load", nil, 7, "", "earlier"},
		"Config":      {"config_get", []uint64{0, 2}, 10, "", "configured"},
		"Secret":      {"secret_get", []uint64{0, 6}, 5, `secret "bucket"`, "value"},
		"Enqueue":     {"enqueue", []uint64{0, 6, 20, 5, 0, 0}, 5, `enqueue bucket "a val"   map[] 0s 0001-01-01 00:00:00 0 0s`, "value"},
		"EnqueueAs": {
			"enqueue",
			[]uint64{0, 6, 20, 5, 600, uint64(len(testOptions))},
			5,
			`enqueue bucket "a val" i k map[a:b] 5s 2023-11-14 22:13:20 3 1m0s priority 0 unique "u" 1s`,
			"value",
		},
		"Dependencies":       {"task_text", []uint64{9}, 21, "dependencies", "a complete\nb waiting\n"},
		"DependencyResult":   {"dependency_result", []uint64{0, 6}, 5, `result "bucket"`, "value"},
		"ErrFaultDependency": {"dependency_result", []uint64{65535, 6}, errnoFault, "", ""},
		"Get":                {"kv_get", []uint64{0, 6, 10, 3}, 5, `get "bucket" "key"`, "value"},
		"GetEmpty":           {"kv_get", []uint64{0, 0, 0, 0}, 5, `get "" ""`, "value"},
		"Set":                {"kv_set", []uint64{0, 6, 10, 3, 20, 5, 1500}, 0, `set "bucket" "key" "a val" 1.5s`, ""},
		"SetForEver":         {"kv_set", []uint64{0, 6, 10, 3, 20, 5, 0}, 0, `set "bucket" "key" "a val" 0s`, ""},
		"SetForLong":         {"kv_set", []uint64{0, 6, 10, 3, 20, 0, 1<<63 - 1}, 0, `set "bucket" "key" "" 876000h0m0s`, ""},
		"Delete":             {"kv_delete", []uint64{0, 6, 10, 3}, 1, `delete "bucket" "key"`, ""},
		"Increment":          {"kv_increment", []uint64{0, 6, 10, 3, 1<<64 - 5, 40}, 0, `increment "bucket" "key" -5`, ""},
		"Swap":               {"kv_swap", []uint64{0, 6, 10, 3, 20, 1, 22, 3, 7}, 0, `swap "bucket" "key" "a" false "val" 7ms`, ""},
		"SwapEmpty":          {"kv_swap", []uint64{0, 6, 10, 3, 20, 0, 22, 3, 0}, 0, `swap "bucket" "key" "" false "val" 0s`, ""},
		"SwapAbsent":         {"kv_swap", []uint64{0, 6, 10, 3, 20, 0xffffffff, 22, 3, 0}, 0, `swap "bucket" "key" "" true "val" 0s`, ""},
		"List":               {"kv_list", []uint64{0, 6, 10, 1, 10, 3, 5}, 20, `list "bucket" "k" "key" 5`, "\x03\x00\x00\x00one\x00\x00\x00\x00\x05\x00\x00\x00three"},
		"HTTP": {
			"http",
			[]uint64{300, uint64(len(testHead)), 20, 5},
			errno(4 + len(head) + 8),
			`http POST https://example.com/ map[Accept:[a] X-Two:[1 2]] "a val" 1.5s`,
			string(binary.LittleEndian.AppendUint32(nil, uint32(len(head)))) + head + "the body",
		},
		"SQL":             {"sql", []uint64{0, 6, 20, 5, 1200, 18}, 5, `query "bucket" "a val" [{'\x01' "ab"} {'\x00' ""} {'\x02' "\xff"}]`, "value"},
		"SQLNothing":      {"sql", []uint64{0, 6, 20, 5, 0, 0}, 5, `query "bucket" "a val" []`, "value"},
		"SQLCommit":       {"sql_commit", []uint64{0, 6, 10, 3, 20, 5}, 5, `commit "bucket" "key" "a val"`, "value"},
		"SQLRollback":     {"sql_rollback", []uint64{0, 6}, 0, `rollback "bucket"`, ""},
		"SQLStep":         {"sql_step", []uint64{0, 6, 10, 3}, 5, `step "bucket" "key"`, "value"},
		"ErrInvalCut":     {"sql", []uint64{0, 6, 20, 5, 1200, 6}, errnoInval, "", ""},
		"ErrInvalCutHead": {"sql", []uint64{0, 6, 20, 5, 1200, 9}, errnoInval, "", ""},
		"ErrInvalKind":    {"sql", []uint64{0, 6, 20, 5, 0, 6}, errnoInval, "", ""},
		"ErrInvalNul":     {"sql", []uint64{0, 6, 1199, 2, 0, 0}, errnoInval, "", ""},
		"ErrFaultSQL":     {"sql", []uint64{0, 6, 65535, 5, 0, 0}, errnoFault, "", ""},
		"ErrTooBigSQL":    {"sql", []uint64{0, 6, 0, 1<<20 + 1, 0, 0}, errnoFault, "", ""},
		"ErrFaultName":    {"kv_get", []uint64{65535, 6, 10, 3}, errnoFault, "", ""},
		"ErrFaultKey":     {"kv_set", []uint64{0, 6, 65535, 2, 20, 5, 0}, errnoFault, "", ""},
		"ErrFaultValue":   {"kv_set", []uint64{0, 6, 10, 3, 65530, 50, 0}, errnoFault, "", ""},
		"ErrFaultTo":      {"kv_increment", []uint64{0, 6, 10, 3, 1, 65529}, errnoFault, "", ""},
		"ErrFaultBody":    {"http", []uint64{300, uint64(len(testHead)), 65535, 5}, errnoFault, "", ""},
		"ErrInvalText":    {"kv_get", []uint64{0, 6, 60, 2}, errnoInval, "", ""},
		"ErrInvalField":   {"task_text", []uint64{11}, errnoInval, "", ""},
		"ErrInvalNumber":  {"task_number", []uint64{5, 0}, errnoInval, "", ""},
		"ErrInvalSleep":   {"sleep", []uint64{1 << 63}, errnoInval, "", ""},
		"ErrInvalClock":   {"clock", []uint64{2, 0}, errnoInval, "", ""},
		"ErrInvalNaN":     {"progress", []uint64{0x7ff8 << 48, 0, 0}, errnoInval, "", ""},
		"ErrInvalLevel":   {"log", []uint64{5, 0, 0, 0, 0}, errnoInval, "", ""},
		"ErrInvalFields":  {"log", []uint64{2, 0, 0, 0, 3}, errnoInval, "", ""},
		"ErrInvalTTL":     {"kv_set", []uint64{0, 6, 10, 3, 20, 5, 1 << 63}, errnoInval, "", ""},
		"ErrInvalOptions": {"enqueue", []uint64{0, 6, 20, 5, 0, 6}, errnoInval, "", ""},
		"ErrInvalMember":  {"enqueue", []uint64{0, 6, 20, 5, 300, uint64(len(testHead))}, errnoInval, "", ""},
		"ErrInvalAt":      {"enqueue", []uint64{0, 6, 20, 5, 800, uint64(len(testFarOptions))}, errnoInval, "", ""},
		"EnqueueBeyond":   {"enqueue", []uint64{0, 6, 20, 5, 1000, uint64(len(testBeyondOptions))}, 5, `enqueue bucket "a val"   map[] -1ms 0001-01-01 00:00:00 0 876000h0m0.001s`, "value"},
		"ErrFaultChild":   {"enqueue", []uint64{0, 6, 65535, 2, 0, 0}, errnoFault, "", ""},
		"ErrInvalHead":    {"http", []uint64{0, 6, 0, 0}, errnoInval, "", ""},
		"ErrInvalHeadEnd": {"http", []uint64{300, uint64(len(testHead)) + 1, 0, 0}, errnoInval, "", ""},
		"ErrTooBigName":   {"secret_get", []uint64{0, maxName + 1}, errnoTooBig, "", ""},
		"ErrTooBigKey":    {"kv_list", []uint64{0, 6, 0, maxName + 1, 0, 0, 5}, errnoTooBig, "", ""},
		"ErrNotFoundConf": {"config_get", []uint64{0, 6}, errnoNotFound, "", ""},
		"ErrTooBigInput":  {"log", []uint64{2, 0, 0, 0, maxFields + 1}, errnoTooBig, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services := &fakeServices{bytes: []byte("value")}
			g := setup(t, 1, Config{Checkpoint: []byte("earlier"), Services: services.set()})
			g.put(0, "bucket")
			g.put(10, "key")
			g.put(20, "a val")
			g.put(60, "\xc3\x28")
			g.put(300, testHead+"x")
			g.put(600, testOptions)
			g.put(800, testFarOptions)
			g.put(1000, testBeyondOptions)
			g.put(1200, "\x01\x02\x00\x00\x00ab\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\xff")
			if name == "Config" {
				g.put(0, "bb")
			}
			g.answers(tt.want, tt.function, tt.a...)
			if got := strings.Join(services.calls, ";"); got != tt.asked {
				t.Errorf("asked %s, want %s", got, tt.asked)
			}
			if told := len(g.host.refused) == 1 && strings.HasPrefix(g.host.refused[0], tt.function+": invalid: "); told != (tt.want == errnoInval) {
				t.Errorf("told %q", g.host.refused)
			}
			if g.system.slot != tt.slot {
				t.Errorf("the slot holds %q, want %q", g.system.slot, tt.slot)
			}
			if name == "Increment" {
				if got := string(g.get(40, 8)); got != "\xfc\xff\xff\xff\xff\xff\xff\xff" {
					t.Errorf("the sum is %x", got)
				}
			}
		})
	}
}

// TestServiceErrors: what a guest is told of an error; who looks after the plugin hears of those that are the plugin's
// own, and the host of those that are its own.
func TestServiceErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want errno
	}{
		"Invalid":     {service.ErrInvalid, errnoInval},
		"Denied":      {service.ErrDenied, errnoDenied},
		"NotFound":    {service.ErrNotFound, errnoNotFound},
		"TooBig":      {service.ErrTooBig, errnoTooBig},
		"Quota":       {service.ErrQuota, errnoQuota},
		"Conflict":    {service.ErrConflict, errnoConflict},
		"Lost":        {service.ErrLost, errnoCancelled},
		"Unavailable": {service.ErrUnavailable, errnoUnavailable},
		"Limit":       {service.ErrLimit, errnoLimit},
		"Deadline":    {context.DeadlineExceeded, errnoUnavailable},
		"Fault":       {errors.New("out of order"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services := &fakeServices{err: fmt.Errorf("the words: %w", tt.err), bytes: []byte("present")}
			for _, f := range Functions() {
				if !strings.HasPrefix(f.Name, "kv_") && !strings.HasPrefix(f.Name, "sql") && f.Name != "http" && f.Name != "enqueue" && f.Name != "dependency_result" && f.Name != "secret_get" && f.Name != "checkpoint_save" {
					continue
				}
				g := setup(t, 1, Config{Services: services.set()})
				g.put(200, "bb")
				g.put(300, testHead)
				if tt.want == 0 {
					if p := ending(func() { g.call(f.Name, arguments(f.Name)...) }); p != errBroke || !errors.Is(g.host.failed, tt.err) {
						t.Errorf("%s: %v, failed with %v", f.Name, p, g.host.failed)
					}
					continue
				}
				g.answers(tt.want, f.Name, arguments(f.Name)...)
				if told := len(g.host.refused) == 1 && strings.HasPrefix(g.host.refused[0], f.Name+": the words"); told != slices.Contains(explained, tt.want) {
					t.Errorf("%s: told %q", f.Name, g.host.refused)
				}
				slot := ""
				if f.Name == "kv_swap" && tt.want == errnoConflict {
					slot = "present"
				}
				if g.system.slot != slot || slot != "" && g.call("result_size") != errno(len(slot)) {
					t.Errorf("%s: the slot holds %q, and says %d", f.Name, g.system.slot, g.call("result_size"))
				}
			}
		})
	}
}

// TestSwapOfNothing: what is not there is no other value.
func TestSwapOfNothing(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Services: (&fakeServices{err: service.ErrConflict}).set()})
	g.answers(errnoNotFound, "kv_swap", 0, 1, 0, 1, 0, 1, 0, 1, 0)
}

// TestNotGranted: without a service its functions are denied.
// What a task enqueues takes of what its output may have, unless it is refused.
func TestEnqueueTakesOutput(t *testing.T) {
	t.Parallel()
	services := &fakeServices{bytes: []byte("id")}
	g := setup(t, 1, Config{Services: services.set()})
	g.host.limit = 100
	g.answers(errnoSuccess, "output_write", 0, 40)
	g.answers(2, "enqueue", 0, 1, 0, 49, 0, 0)
	g.answers(errnoTooBig, "enqueue", 0, 1, 0, 10, 0, 0)
	services.err = service.ErrDenied
	g.answers(errnoDenied, "enqueue", 0, 1, 0, 9, 0, 0)
	services.err = nil
	g.answers(2, "enqueue", 0, 1, 0, 9, 0, 0)
	g.answers(errnoTooBig, "output_write", 0, 1)
	if len(services.calls) != 3 {
		t.Errorf("calls %q", services.calls)
	}
}

func TestNotGranted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kv_get", "kv_set", "kv_delete", "kv_increment", "kv_swap", "kv_list", "http", "sql", "sql_commit", "sql_rollback", "sql_step", "secret_get", "checkpoint_save"} {
		g := setup(t, 1, Config{})
		g.put(200, "bb")
		g.put(300, testHead)
		g.answers(errnoDenied, name, arguments(name)...)
		if want := name + ": denied: the manifest grants no " + name + ", or there is none here"; !slices.Equal(g.host.refused, []string{want}) {
			t.Errorf("told %q, want %q", g.host.refused, want)
		}
		// The guest gets the same text, without the function's name, and only when it asks.
		g.answers(0, "result_size")
		want := "denied: the manifest grants no " + name + ", or there is none here"
		g.answers(errno(len(want)), "task_text", 10)
		g.answers(errno(len(want)), "result_read", 0, 500, uint64(len(want)))
		if got := string(g.get(500, uint32(len(want)))); got != want {
			t.Errorf("the guest is told %q, want %q", got, want)
		}
	}
	setup(t, 1, Config{}).answers(0, "task_text", 10) // nothing was refused
	setup(t, 1, Config{}).answers(errnoNotFound, "checkpoint_load")
}

// TestCheckpoint: what was saved last is loaded, however short.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	services := &fakeServices{}
	g := setup(t, 1, Config{Checkpoint: []byte("earlier"), Services: services.set()})
	g.put(0, "newer")
	g.answers(0, "checkpoint_save", 0, 5)
	g.put(0, "xxxxx")
	g.answers(5, "checkpoint_load")
	g.answers(5, "result_read", 0, 100, 5)
	if got := string(g.get(100, 5)); got != "newer" {
		t.Errorf("it holds %q", got)
	}
	g.answers(0, "checkpoint_save", 0, 0)
	g.answers(0, "checkpoint_load")
	services.err = service.ErrLost
	g.answers(errnoCancelled, "checkpoint_save", 0, 5)
	g.answers(0, "checkpoint_load")
}

// TestConfigAtTheStart: what the start asks for it can read.
func TestConfigAtTheStart(t *testing.T) {
	t.Parallel()
	for _, stage := range []Stage{Initializing, Warming} {
		g := setup(t, 1, Config{Stage: stage, Services: (&fakeServices{}).set()})
		g.put(0, "empty")
		g.answers(errnoState, "result_read", 0, 100, 5)
		g.answers(0, "config_get", 0, 5)
		g.answers(0, "result_read", 0, 100, 5)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		level           uint64
		message, fields string
		want            errno
		line            string
	}{
		"Info":         {2, "it begins", "", 0, "it begins"},
		"Trace":        {0, "x", "", 0, "trace: x"},
		"Debug":        {1, "x", "{}", 0, "debug: x"},
		"Warning":      {3, "x", ` {"a" : 1}`, 0, `warning: x {"a":1}`},
		"Error":        {4, "", `{"a":{"b":[null]}}`, 0, `error:  {"a":{"b":[null]}}`},
		"Any":          {2, "\xff\n", "", 0, "\xff\n"},
		"ErrLevel":     {5, "x", "", errnoInval, ""},
		"ErrLevelNone": {1<<32 - 1, "x", "", errnoInval, ""},
		"ErrNoObject":  {2, "x", "[1]", errnoInval, ""},
		"ErrNoJSON":    {2, "x", "{", errnoInval, ""},
		"ErrMore":      {2, "x", "{}{}", errnoInval, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{})
			g.put(0, tt.message)
			g.put(1000, tt.fields)
			g.answers(tt.want, "log", tt.level, 0, uint64(len(tt.message)), 1000, uint64(len(tt.fields)))
			if got := strings.Join(g.host.lines, "|"); got != tt.line {
				t.Errorf("logged %q, want %q", got, tt.line)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{})
	g.put(0, "half")
	nan := api.EncodeF64(0) | 0x7ff8000000000001
	g.answers(0, "progress", api.EncodeF64(0.5), 0, 4)
	g.answers(0, "progress", api.EncodeF64(1+1e-12), 0, 0)
	g.answers(0, "progress", api.EncodeF64(-3), 0, 0)
	g.answers(0, "progress", 0x7ff0000000000000, 0, 0)
	g.answers(errnoInval, "progress", nan, 0, 4)
	g.answers(errnoFault, "progress", 0, 65535, 4)
	if want := []string{"0.5 half", "1 ", "0 ", "1 "}; !slices.Equal(g.host.told, want) {
		t.Errorf("told %q, want %q", g.host.told, want)
	}
	if want := []string{"warning: progress -3: use 0 to 1, such as 0.5"}; !slices.Equal(g.host.lines, want) {
		t.Errorf("logged %q, want %q", g.host.lines, want)
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{})
	g.answers(0, "sleep", 1500)
	g.answers(errnoInval, "sleep", 1<<63)
	if g.host.waited != 1500*time.Millisecond {
		t.Errorf("slept %s", g.host.waited)
	}
	g.answers(0, "sleep", 1<<63-1)
	if g.host.waited != 1500*time.Millisecond+maxDelay {
		t.Errorf("slept %s", g.host.waited)
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	if own, all := len(Functions()), extismFirst+len(ExtismFunctions()); own > extismInput || all > maxFunctions {
		t.Fatalf("%d functions, and %d with Extism's: raise extismInput and maxFunctions", own, all)
	}
	counters := &Counters{}
	g := setup(t, 1, Config{Input: []byte("input"), Counters: counters})
	g.answers(5, "input_size")
	g.answers(5, "input_read", 0, 0, 10)
	g.answers(2, "input_read", 3, 0, 10)
	g.answers(errnoFault, "input_read", 0, 65530, 10)
	g.answers(errnoDenied, "kv_get", 0, 0, 0, 0)
	got := map[string]uint64{}
	counters.Each(func(function, result string, n uint64) {
		if n > 0 || function == "clock" {
			got[function+" "+result] = n
		}
	}, func(function string, n uint64) {
		if n > 0 {
			got[function] = n
		}
	})
	want := "map[clock ok:0 input_read:7 input_read EFAULT:1 input_read ok:2 input_size ok:1 kv_get EDENIED:1]"
	if fmt.Sprint(got) != want {
		t.Errorf("counted %v, want %s", got, want)
	}
}
