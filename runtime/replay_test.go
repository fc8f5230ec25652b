package runtime

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// recordRun runs a call of a module and records it.
func recordRun(t *testing.T, module *Module, profile Profile, call Call) (*replay.Record, Outcome) {
	t.Helper()
	profile.Tape = func() *replay.Tape { return replay.NewTape(replay.MaxStart) }
	call.Tape = replay.TapeOf(256 << 10)
	pool := module.Bind(profile)
	t.Cleanup(pool.Close)
	outcome := pool.Run(t.Context(), call)
	limits := profile.Limits.WithDefaults()
	record := &replay.Record{
		Header: replay.Header{Task: call.TaskID, Tenant: profile.Tenant, Env: profile.Env, Config: profile.Config, Limits: limits.Recorded(), Outcome: outcome.Recorded()},
		Warm:   profile.Warm, Input: call.Input, Checkpoint: call.Checkpoint,
	}
	if err := call.Tape.Finish(record); err != nil {
		t.Fatal(err)
	}
	return record, outcome
}

// replayRun replays a record in a new pool of the module, up to some fuel.
func replayRun(t *testing.T, module *Module, record *replay.Record, options replay.Options, until int64) Outcome {
	t.Helper()
	tape := record.Play(options)
	call := ReplayCall(record, tape)
	call.Until = until
	pool := module.Bind(ReplayProfile(record, options, nil))
	t.Cleanup(pool.Close)
	return pool.Run(t.Context(), call)
}

// datedHTTP answers each request.
type datedHTTP struct{}

func (datedHTTP) Do(context.Context, service.Request) (service.Response, error) {
	return service.Response{Status: 200, Headers: map[string][]string{"Date": {time.Now().String()}}, Body: []byte("hello at " + time.Now().String())}, nil
}

// TestReplayEnds: a replay of each kind of module ends as its recorded run did, with the same output and fuel.
func TestReplayEnds(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for name, test := range map[string]struct {
		module []byte
		call   Call
	}{
		"a command that reads clock and random numbers": {runtimetest.BuildGo(t, `package main

import ("fmt"; "math/rand/v2"; "os"; "time")

func main() {
	counts := map[string]int{}
	for i := range 20 { counts[fmt.Sprint(i)] = rand.IntN(1000) }
	time.Sleep(time.Millisecond)
	fmt.Print(time.Now(), counts, os.Environ())
	for name := range counts { fmt.Print(name) }
}`), Call{TaskID: "one", Input: []byte("x")}},
		"a handler that was refused, and traps": {
			asking(t, `(drop `+askSecret+`) (drop `+askSecret+`) (unreachable)`),
			Call{Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
				return nil, &service.Confidential{Err: errors.New("at 10.0.0.1"), Told: "no"}
			})}},
		},
		"an Extism plugin that sends a request": {
			extism(t, `(call $show (call $http_request (call $block (i32.const 32) (i32.const 30)) (i64.const 0))) (i32.const 0)`),
			Call{Services: service.Services{HTTP: datedHTTP{}}},
		},
		"a handler that logs too fast": {asking(t, `(local $i i32)
			(loop $more
				(drop (call $log (i32.const 2) (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 0)))
				(local.set $i (i32.add (local.get $i) (i32.const 1)))
				(br_if $more (i32.lt_u (local.get $i) (i32.const 1500))))
			(i32.const 3)`), Call{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := loadInto(t, engine, test.module)
			record, want := recordRun(t, module, Profile{Tenant: "acme", Env: map[string]string{"A": "b"}}, test.call)
			got := replayRun(t, module, record, replay.Options{}, 0)
			got.CPU, got.GuestTime, got.WaitTime, got.Err = want.CPU, want.GuestTime, want.WaitTime, want.Err
			if !reflect.DeepEqual(got, want) { //nolint:govet // the errors are the same
				t.Errorf("the replay ends in\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// TestReplayStopped: a run that its host has stopped by the clock, in a call or while it computes, stops in the replay
// at the same fuel; and so does a replay that is to stop earlier.
func TestReplayStopped(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for name, test := range map[string]struct {
		body  string
		serve func(ctx context.Context) error
		cause error
	}{
		"computing": {`(loop $more (br $more)) (unreachable)`, nil, replay.ErrStopped},
		"sleeping":  {`(drop (call $sleep (i64.const 3600000))) (i32.const 0)`, nil, replay.ErrStopped},
		"in a call": {askSecret, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, replay.ErrStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := loadInto(t, engine, asking(t, test.body))
			record, want := recordRun(t, module, Profile{Limits: Limits{Timeout: 50 * time.Millisecond}}, Call{
				Services: service.Services{Secrets: secrets(func(ctx context.Context, _ string) ([]byte, error) { return nil, test.serve(ctx) })},
			})
			if want.Limit.Name != "timeout" || !record.Outcome.Stopped {
				t.Fatalf("%+v", want)
			}
			got := replayRun(t, module, record, replay.Options{}, want.Fuel)
			if !errors.Is(got.Err, test.cause) || got.Fuel != want.Fuel {
				t.Errorf("the replay ends by %v at fuel %d, want %v at %d", got.Err, got.Fuel, test.cause, want.Fuel)
			}
		})
	}
	module := loadInto(t, engine, asking(t, `(loop $more (br $more)) (unreachable)`))
	record, _ := recordRun(t, module, Profile{Limits: Limits{CPU: time.Millisecond}}, Call{})
	for _, until := range []int64{1, 5_000, 123_456} {
		got := replayRun(t, module, record, replay.Options{}, until)
		if !errors.Is(got.Err, replay.ErrStopped) || got.Fuel < until || got.Fuel > until+20 || len(got.Backtrace) == 0 {
			t.Errorf("until %d: %+v", until, got)
		}
	}
}

// TestReplayDiverges: a replay that asks for something else ends there, and its place is told.
func TestReplayDiverges(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	ask := func(at string) []byte {
		return asking(t, `(drop (call $secret_get (i32.const `+at+`) (i32.const 5))) (i32.const 7)`)
	}
	one, other := loadInto(t, engine, ask("4")), loadInto(t, engine, ask("3"))
	record, _ := recordRun(t, one, Profile{}, Call{Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
		return []byte("the secret value"), nil
	})}})
	got := replayRun(t, other, record, replay.Options{Changed: true}, 0)
	diverged, ok := errors.AsType[*replay.Diverged](got.Err)
	if !ok || diverged.Index != 1 || !strings.Contains(diverged.Recorded, `secret_get "words"`) || !strings.Contains(diverged.Asked, `secret_get " word"`) || len(got.Backtrace) == 0 {
		t.Errorf("%+v", got)
	}
	if got := replayRun(t, one, record, replay.Options{}, 0); !strings.Contains(got.Message, "pass --secret words=VALUE") {
		t.Errorf("without the secret: %+v", got)
	}
}

// TestReplayWarm: what a handler and its warm call read before the snapshot is part of the record.
func TestReplayWarm(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	if engine.resetMode == ResetNew {
		t.Skip("there are no snapshots here")
	}
	module := loadInto(t, engine, runtimetest.BuildWAT(t, `(module
		(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
		(import "quern_v1" "clock" (func $clock (param i32 i32) (result i32)))
		(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
		(memory (export "memory") 1)
		(func (export "_initialize") (drop (call $random (i32.const 0) (i32.const 8))))
		(func (export "quern_handle") (result i32)
			(if (i64.eqz (i64.load (i32.const 8))) (then (drop (call $clock (i32.const 0) (i32.const 8)))))
			(drop (call $random (i32.const 16) (i32.const 8)))
			(drop (call $output_write (i32.const 0) (i32.const 24)))
			(i32.const 0)))`))
	record, want := recordRun(t, module, Profile{Warm: []byte("warm")}, Call{})
	got := replayRun(t, module, record, replay.Options{}, 0)
	if string(got.Output) != string(want.Output) || len(want.Output) != 24 || got.Fuel != want.Fuel {
		t.Errorf("the replay returns %x at %d, want %x at %d", got.Output, got.Fuel, want.Output, want.Fuel)
	}
}
