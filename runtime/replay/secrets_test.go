package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
)

// vault has secrets, and a bucket of answers.
type vault struct {
	world
	secrets map[string]string
	answers map[string]string
}

func (v *vault) Secret(_ context.Context, name string) ([]byte, error) {
	return []byte(v.secrets[name]), nil
}

func (v *vault) Get(_ context.Context, _, key string) ([]byte, error) {
	answer, ok := v.answers[key]
	if !ok {
		return nil, &service.Confidential{Err: service.ErrNotFound, Told: "no key " + key}
	}
	return []byte(answer), nil
}

// read reads an answer and then all secrets, as a guest does.
func (v *vault) read(tape *Tape, live service.Services, key string) string {
	s := tape.Services(live)
	answer, err := s.KV.Get(context.Background(), "bucket", key)
	for _, name := range []string{"pin", "token", "password", "empty", "word"} {
		value, _ := s.Secrets.Secret(context.Background(), name)
		tape.Secrets.Add(name, value)
	}
	if err != nil {
		return service.Told(err)
	}
	return string(answer)
}

// Values that are short, or that contain one another, are hidden, and a replay gets the answers as they were.
func TestSecretsInAnswers(t *testing.T) {
	t.Parallel()
	v := &vault{
		secrets: map[string]string{"pin": "4711", "token": "token-4711-of-the-password", "password": "secret", "empty": "", "word": "pin"},
		answers: map[string]string{
			"short":     "the pin is 4711, again 4711",
			"contained": "token-4711-of-the-password and 4711",
			"adjacent":  "47114711token-4711-of-the-passwordsecret4711",
			"marks":     "a mark \x00secret:pin\x00 and \x00pin\x00 and \x00\x00, of 4711\x00",
			"zeros":     "\x00\x00 without a value",
			"overlap":   "sectoken-4711-of-the-passwordret token-secret",
			"none":      "",
		},
	}
	for _, key := range []string{"short", "contained", "adjacent", "marks", "zeros", "overlap", "none", "lacking 4711"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			tape := NewTape(1 << 20)
			tape.Secrets = new(redact.Secrets)
			want := v.read(tape, service.Services{KV: v, Secrets: v}, key)
			saved := []byte("saved 4711 \x00")
			record := &Record{Header: Header{Task: "one", Run: 2}, Checkpoint: saved}
			if err := tape.Finish(record); err != nil {
				t.Fatal(err)
			}
			for name, value := range v.secrets {
				// The record's own words have the other values.
				if digits := name == "pin" || name == "token"; digits && (bytes.Contains(record.events, []byte(value)) || bytes.Contains(record.Checkpoint, []byte(value))) {
					t.Errorf("the record has the value of %s: %q %q", name, record.events, record.Checkpoint)
				}
				if !record.IsSecret(name, []byte(value)) {
					t.Errorf("the record takes the value of %s for another", name)
				}
			}
			given := map[string][]byte{}
			for name, value := range v.secrets {
				given[name] = []byte(value)
			}
			player := player(t, record, Options{Secrets: given})
			var got string
			if err := ended(func() { got = v.read(player, service.Services{}, key) }); err != nil || got != want {
				t.Errorf("the replay got %q, want %q, %v", got, want, err)
			}
			if got := player.Checkpoint(); !bytes.Equal(got, saved) {
				t.Errorf("the checkpoint is %q", got)
			}
		})
	}
}

// A value that the run has not read changes no argument in a replay.
func TestOtherSecretsAreNotUsed(t *testing.T) {
	t.Parallel()
	v := &vault{secrets: map[string]string{"pin": "4711"}, answers: map[string]string{"page": "page 4711"}}
	tape := NewTape(1000)
	tape.Secrets = new(redact.Secrets)
	read := func(tape *Tape, live service.Services) {
		s := tape.Services(live)
		pin, _ := s.Secrets.Secret(t.Context(), "pin")
		tape.Secrets.Add("pin", pin)
		_, _ = s.KV.Get(t.Context(), "bucket", "page "+string(pin))
	}
	read(tape, service.Services{KV: v, Secrets: v})
	record := new(Record)
	if err := tape.Finish(record); err != nil {
		t.Fatal(err)
	}
	given := map[string][]byte{"pin": []byte("4711"), "word": []byte("page"), "long": []byte("page 4711")}
	if err := ended(func() { read(player(t, record, Options{Secrets: given}), service.Services{}) }); err != nil {
		t.Error(err)
	}
}

// A record tells 255 of 256 wrong values from the right one.
func TestIsSecret(t *testing.T) {
	t.Parallel()
	record := &Record{Header: Header{Task: "one", Run: 1}}
	record.Secrets = map[string]byte{"key": record.check("key", []byte("right"))}
	right := 0
	for i := range 1000 {
		if record.IsSecret("key", fmt.Append(nil, i)) {
			right++
		}
	}
	if right > 30 || !record.IsSecret("key", []byte("right")) {
		t.Errorf("%d of 1000 wrong values pass", right)
	}
}

// All records of a tenant together tell no more of a value than one of them.
func TestChecksDoNotAddUp(t *testing.T) {
	t.Parallel()
	of := func(tenant, task string, run int64) byte {
		r := Record{Header: Header{Tenant: tenant, Task: task, Run: run}}
		return r.check("key", []byte("value"))
	}
	for run := range int64(20) {
		if of("acme", fmt.Sprint("task-", run), run) != of("acme", "one", 1) {
			t.Fatalf("run %d tells other bits", run)
		}
	}
	if of("acme", "one", 1) == of("other", "one", 1) {
		t.Error("the bits of two tenants are the same")
	}
}

// Names in place of short values do not make a record larger than its limit, neither in answers nor in the checkpoint.
func TestHiddenIsBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ answer, checkpoint int }{{500, 0}, {0, 500}} {
		v := &vault{secrets: map[string]string{"pin": "4"}, answers: map[string]string{"many": strings.Repeat("4", test.answer)}}
		tape := NewTape(1000)
		tape.Secrets = new(redact.Secrets)
		v.read(tape, service.Services{KV: v, Secrets: v}, "many")
		if err := tape.Finish(&Record{Checkpoint: bytes.Repeat([]byte("4"), test.checkpoint)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// Hiding stops where the room ends, however long the names are.
func TestHidingStops(t *testing.T) {
	t.Parallel()
	const room = 1000
	forms, name := new(redact.Secrets), strings.Repeat("n", 200)
	forms.Add(name, []byte("line-one\nline-two"))
	for what, hide := range map[string]func(*secrets, []byte) []byte{
		"hide": (*secrets).hide, "other": (*secrets).other, "name": func(s *secrets, text []byte) []byte { return []byte(s.name(string(text))) },
	} {
		for _, word := range []string{"4", "line-two "} {
			s := newSecrets(map[string][]byte{name: []byte("4")}, forms)
			s.room = room
			if out := hide(s, bytes.Repeat([]byte(word), 2*room)); len(out) > room || s.room >= 0 {
				t.Errorf("%s of %q has %d bytes, and there is room for %d", what, word, len(out), s.room)
			}
		}
	}
}
