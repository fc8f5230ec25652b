package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
)

const secretValue = "the value of the secret"

// world is what is outside of a run: each call gets the next number.
type world struct{ calls int }

func (w *world) next() string {
	w.calls++
	return fmt.Sprint(w.calls)
}

func (w *world) Get(_ context.Context, _, key string) ([]byte, error) {
	if key == "none" {
		return nil, fmt.Errorf("%w: no such key", service.ErrNotFound)
	}
	return []byte(w.next() + " " + secretValue), nil
}
func (w *world) Set(context.Context, string, string, []byte, time.Duration) error { return nil }
func (w *world) Delete(context.Context, string, string) (bool, error)             { return true, nil }
func (w *world) Increment(context.Context, string, string, int64) (int64, error)  { return -7, nil }
func (w *world) Swap(_ context.Context, _, key string, _, _ []byte, _ time.Duration) ([]byte, error) {
	if key == "empty" {
		return []byte{}, service.ErrConflict
	}
	return nil, service.ErrConflict
}

func (w *world) List(context.Context, string, string, string, int) ([]string, error) {
	return []string{"a", ""}, nil
}

func (w *world) Do(_ context.Context, r service.Request) (service.Response, error) {
	if r.Method == "PUT" {
		return service.Response{}, &service.Confidential{Err: fmt.Errorf("%w: 10.0.0.1", service.ErrUnavailable), Told: "no server"}
	}
	return service.Response{Status: 201, Headers: map[string][]string{"a": {"1", "2"}, "b": {""}}, Body: []byte(w.next())}, nil
}
func (w *world) Secret(context.Context, string) ([]byte, error) { return []byte(secretValue), nil }
func (w *world) Query(context.Context, string, string, []service.SQLValue) ([]byte, error) {
	return []byte(w.next()), nil
}

func (w *world) Commit(context.Context, string, string, []byte) ([]byte, error) {
	return []byte(w.next()), nil
}
func (w *world) Rollback(context.Context, string) error { return errors.New("out of order") }
func (w *world) Step(context.Context, string, string) ([]byte, error) {
	return nil, context.DeadlineExceeded
}

func (w *world) Enqueue(context.Context, service.Child) (string, error) { return w.next(), nil }

func (w *world) Publish(context.Context, service.Publication) (string, error) { return w.next(), nil }

func (w *world) Save(context.Context, []byte) error { return service.ErrLost }

type dependencies struct{ *world }

func (dependencies) List(context.Context) ([]service.Dependency, error) {
	return []service.Dependency{{ID: "one", End: "complete"}, {ID: "two", End: "failed"}}, nil
}

func (d dependencies) Result(context.Context, string) ([]byte, error) { return []byte(d.next()), nil }

// live are all services of a world.
func live() service.Services {
	w := &world{}
	return service.Services{
		KV: w, HTTP: w, Secrets: w, SQL: w, Enqueue: w, Publish: w, Checkpoint: w, Dependencies: dependencies{w}, Vars: true,
		PublishAtOnce: true, Config: map[string]string{"a": "b"},
	}
}

// course asks for everything, and tells what it got.
func course(t *Tape, s service.Services) (all []string) {
	ctx := context.Background()
	saw := func(values ...any) {
		for _, v := range values {
			var fault error
			if err, is := v.(error); is {
				v = service.Told(err)
				if classOf(err) == unknown { // guests do not learn its text
					v, fault = "fault", nil
				}
			}
			all = append(all, fmt.Sprintf("%v %#v", fault, v))
		}
	}
	saw(t.Clock(0, time.Now().UnixNano()), t.Clock(1, 5), t.Clock(1, 9), t.Deadline(77), t.Ending(1), t.Paced(true), t.Paced(false))
	random := make([]byte, 40)
	t.Random(random)
	saw(random)
	value, err := s.Secrets.Secret(ctx, "key")
	t.Secrets.Add("key", value)
	saw(string(value), err)
	secret := string(value)
	for _, key := range []string{"some", "none"} {
		value, err = s.KV.Get(ctx, "bucket", key)
		saw(string(value), err)
	}
	saw(s.KV.Set(ctx, "bucket", "a "+secret, nil, 0))
	existed, err := s.KV.Delete(ctx, "b", "k")
	saw(existed, err)
	sum, err := s.KV.Increment(ctx, "b", "k", 1)
	saw(sum, err)
	for _, key := range []string{"empty", "nil"} {
		value, err = s.KV.Swap(ctx, "b", key, nil, nil, 0)
		saw(value == nil, err)
	}
	keys, err := s.KV.List(ctx, "b", "", "", 5)
	saw(keys, err)
	for _, method := range []string{"GET", "PUT"} {
		response, err := s.HTTP.Do(ctx, service.Request{Method: method, URL: "https://example.com/?token=" + secret})
		saw(response.Status, string(response.Body), len(response.Headers), response.Headers["a"], err)
	}
	value, err = s.SQL.Query(ctx, "shop", "SELECT 1", nil)
	saw(string(value), err)
	value, err = s.SQL.Commit(ctx, "shop", "step", nil)
	saw(string(value), err)
	saw(s.SQL.Rollback(ctx, "shop"))
	value, err = s.SQL.Step(ctx, "shop", "step")
	saw(string(value), err)
	id, err := s.Enqueue.Enqueue(ctx, service.Child{Queue: "mail"})
	saw(id, err)
	id, err = s.Publish.Publish(ctx, service.Publication{Topic: "orders"})
	saw(id, err, s.Checkpoint.Save(ctx, nil))
	list, err := s.Dependencies.List(ctx)
	saw(list, err)
	value, err = s.Dependencies.Result(ctx, "one")
	saw(string(value), err, s.Vars, s.EnqueueAtOnce, s.PublishAtOnce)
	return all
}

// recordCourse is the record of a course, written and read again.
func recordCourse(t *testing.T) (*Record, []string) {
	t.Helper()
	tape := NewTape(1 << 20)
	tape.Secrets = new(redact.Secrets)
	tape.Started([]byte{byte(pace)}, true)
	all := course(tape, tape.Services(live()))
	record := &Record{Header: Header{Task: "id", Headers: map[string]string{"a": "b"}}, Checkpoint: []byte{}, Input: []byte("input")}
	if err := tape.Finish(record); err != nil {
		t.Fatal(err)
	}
	data, err := record.Encode(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(record, again) {
		t.Errorf("read %+v, wrote %+v", again, record)
	}
	return again, all
}

// player is a tape that plays a record back.
func player(t *testing.T, record *Record, o Options) *Tape {
	t.Helper()
	if o.Secrets == nil {
		o.Secrets = map[string][]byte{"key": []byte(secretValue)}
	}
	tape := record.Play(o)
	tape.Secrets, tape.End = new(redact.Secrets), func(cause error) { panic(cause) }
	return tape
}

// ended is the cause with which a replay ends the guest.
func ended(do func()) (cause error) {
	defer func() { cause, _ = recover().(error) }()
	do()
	return nil
}

// A replay gets what the recorded run got, and its own record is the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	record, want := recordCourse(t)
	tape := player(t, record, Options{})
	got := course(tape, tape.Services(service.Services{}))
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("answer %d is not %s", i, want[i])
		}
	}
	again := *record
	if err := tape.Finish(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.events, record.events) {
		t.Errorf("the record of the replay differs")
	}
	if len(tape.Sent) != 2 {
		t.Errorf("sent %q", tape.Sent)
	}
	diverged := new(Diverged)
	if cause := ended(func() { tape.Random(make([]byte, 1)) }); !errors.As(cause, &diverged) || diverged.Recorded != "nothing more" {
		t.Errorf("at its end: %v", cause)
	}
}

// A record has no value of a secret, and a replay has the values that it is given.
func TestSecrets(t *testing.T) {
	t.Parallel()
	record, _ := recordCourse(t)
	if bytes.Contains(record.events, []byte(secretValue)) {
		t.Errorf("the record has the secret: %q", record.events)
	}
	if names := record.SecretNames(); len(names) != 1 || names[0] != "key" || !record.IsSecret("key", []byte(secretValue)) {
		t.Errorf("names %q", names)
	}
	tape := player(t, record, Options{Secrets: map[string][]byte{"key": []byte("another value of it")}})
	got := strings.Join(course(tape, tape.Services(service.Services{})), "\n")
	if strings.Contains(got, secretValue) || strings.Count(got, "another value of it") != 2 {
		t.Errorf("got\n%s", got)
	}
}

// A replay that asks for something else is told at which call, and what was recorded.
func TestDiverged(t *testing.T) {
	t.Parallel()
	tape := NewTape(1 << 10)
	tape.Secrets = new(redact.Secrets)
	s := tape.Services(live())
	tape.Clock(0, 1)
	tape.Clock(0, 2)
	_, _ = s.KV.Get(t.Context(), "bucket", "none")
	tape.Random(make([]byte, 2))
	tape.Clock(0, 4)
	_ = s.KV.Set(t.Context(), "bucket", "none", nil, 0)
	record := new(Record)
	if err := tape.Finish(record); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		changed bool
		ask     func(tape *Tape, s service.Services)
		want    string
	}{
		"another call": {
			false, func(_ *Tape, s service.Services) { _, _ = s.KV.Get(t.Context(), "bucket", "none") },
			`call 1 differs from the record: recorded clock (wall), asked kv_get "bucket" "none"`,
		},
		"another key": {
			true, func(_ *Tape, s service.Services) { _, _ = s.KV.Get(t.Context(), "bucket", "other") },
			`call 1 differs from the record: recorded kv_get "bucket" "none", asked kv_get "bucket" "other"`,
		},
		"other bytes": {false, func(tape *Tape, s service.Services) {
			tape.Clock(0, 0)
			tape.Clock(0, 0)
			_, _ = s.KV.Get(t.Context(), "bucket", "none")
			tape.Random(make([]byte, 3))
		}, "call 4 differs from the record: recorded random of 2 bytes, asked random of 3 bytes"},
		"more": {true, func(tape *Tape, s service.Services) {
			_, _ = s.KV.Get(t.Context(), "bucket", "none")
			_ = s.KV.Set(t.Context(), "bucket", "none", nil, 0)
			_ = s.KV.Set(t.Context(), "bucket", "none", nil, 0)
		}, `call 3 differs from the record: recorded nothing more, asked kv_set "bucket" "none"`},
		// A changed module reads clocks and random numbers as it likes.
		"the same": {true, func(tape *Tape, s service.Services) {
			tape.Random(make([]byte, 7))
			_, _ = s.KV.Get(t.Context(), "bucket", "none")
			if now := tape.Clock(0, 0); now != 4 {
				t.Errorf("the clock reads %d", now)
			}
			for range 2 {
				if now := tape.Clock(0, 0); now != 4 {
					t.Errorf("after the last recorded reading it reads %d", now)
				}
			}
			_ = s.KV.Set(t.Context(), "bucket", "none", nil, 0)
		}, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tape := player(t, record, Options{Changed: test.changed})
			cause := ended(func() { test.ask(tape, tape.Services(service.Services{})) })
			if fmt.Sprint(cause) != test.want {
				t.Errorf("ended by %v, want %s", cause, test.want)
			}
		})
	}
}

// A run that its host has stopped ends in a replay where the record ends.
func TestEndOfStopped(t *testing.T) {
	t.Parallel()
	tape := player(t, &Record{Header: Header{Outcome: Outcome{Stopped: true}}}, Options{})
	if cause := ended(func() { tape.Clock(0, 0) }); !errors.Is(cause, ErrEnd) {
		t.Errorf("ended by %v", cause)
	}
}

// A tape drops what exceeds its limit, and so does a record.
func TestBounds(t *testing.T) {
	t.Parallel()
	tape := NewTape(10)
	for range 3 {
		tape.Random(make([]byte, 4))
	}
	if tape.Events() != nil || !tape.Over() {
		t.Errorf("it has %d bytes", len(tape.Events()))
	}
	if err := tape.Finish(new(Record)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("finished: %v", err)
	}
	record, _ := recordCourse(t)
	if _, err := record.Encode(100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("encoded: %v", err)
	}
}

// A start whose tape was too small spoils the record.
func TestStartOverLimit(t *testing.T) {
	t.Parallel()
	tape := NewTape(100)
	tape.Started(nil, false)
	if err := tape.Finish(new(Record)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("finished: %v", err)
	}
}

// A nil tape passes everything on.
func TestNoTape(t *testing.T) {
	t.Parallel()
	var tape *Tape
	s := live()
	if !reflect.DeepEqual(tape.Services(s), s) || tape.Clock(1, 3) != 3 || tape.Deadline(4) != 4 || tape.Ending(1) != 1 || !tape.Paced(true) {
		t.Error("it changes something")
	}
	random := make([]byte, 16)
	if tape.Random(random); bytes.Equal(random, make([]byte, 16)) {
		t.Error("no random numbers")
	}
}

// FuzzDecode: no bytes are more than a damaged record.
func FuzzDecode(f *testing.F) {
	tape := NewTape(1 << 20)
	tape.Secrets = new(redact.Secrets)
	course(tape, tape.Services(live()))
	f.Add(tape.Events())
	f.Add([]byte{byte(kvGet), 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, events []byte) {
		d := decoder{rest: events}
		for len(d.rest) > 0 {
			e := d.event()
			if d.err == nil && len(e.append(nil)) > 2*len(events) {
				t.Errorf("%+v of %d bytes", e, len(events))
			}
		}
		tape := player(t, &Record{events: events}, Options{Changed: true})
		_ = ended(func() { course(tape, tape.Services(service.Services{})) })
		_, _ = Decode(append([]byte(magic), events...))
	})
}
