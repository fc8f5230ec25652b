package queue_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

func FuzzEncodeValue(f *testing.F) {
	for _, value := range []string{"", "text", "grüße", "\x00", "\xff\xd8\xff\xe0", "quern:bytes:", "quern:bytes:1:ab", "Quern:bytes:", "\xed\xa0\x80"} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		text, companion := store.EncodeValue(value)
		if !utf8.ValidString(text) {
			t.Fatalf("%q is not UTF-8: a Python client cannot read it", text)
		}
		// What Client.Task and payload() in the scripts do.
		back := []byte(text)
		if store.IsMarker(text) {
			back = companion
		}
		if !bytes.Equal(back, value) {
			t.Errorf("%q came back as %q", value, back)
		}
		if store.IsMarker(text) != (companion != nil) {
			t.Errorf("%q: text %q with a companion of %d bytes", value, text, len(companion))
		}
		if companion == nil && text != string(value) {
			t.Errorf("%q became %q", value, text)
		}
	})
}

func FuzzParseSeconds(f *testing.F) {
	for _, text := range []string{
		"", "0", "1700000000", "1700000000.123456", "1700000000.1", "1700000000.", ".5", "1.7e9", "1e+18", "-1", "-1.5", "+1",
		"1700000000.-5", "1700000000.5e3", "nan", "inf", "9223372036854775807", "1700000000000000", " 1", "1_000", "0x10",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		moment := store.ParseSeconds(text)
		if moment.IsZero() {
			return
		}
		if moment.Unix() < 0 || moment.Unix() > 1e12 {
			t.Fatalf("%q is %s: not a time of this world", text, moment)
		}
		if again := store.ParseSeconds(store.Seconds(moment)); moment.Unix() > 0 && !again.Equal(moment) {
			t.Errorf("%q is %s, written and read again %s", text, moment, again)
		}
	})
}

// A hash may hold anything: Python and people write it, too.
func FuzzTask(f *testing.F) {
	f.Add("status", "complete", `{"reason":"error","message":"no","exit_code":3}`)
	f.Add("labels", `{"a":"b"}`, `{"reason":5}`)
	f.Add("labels", `["a"]`, "Traceback (most recent call last):")
	f.Add("run", "-1", "null")
	f.Add("progress", "NaN", `"text"`)
	f.Add("created", "1700000000.123456", "")
	f.Add("pid", "999999999999999999999", "{")
	f.Fuzz(func(t *testing.T, field, value, text string) {
		task := queue.ParseTask("id", map[string]string{"status": "failed", "error": text, field: value})
		failure := task.Failure()
		if failure.Reason == "" {
			t.Errorf("%q has no reason", text)
		}
		if again := failure.Encode(); !utf8.Valid(again) {
			t.Errorf("%q is written as %q", text, again)
		}
	})
}

func TestParseSeconds(t *testing.T) {
	t.Parallel()
	for text, micros := range map[string]int64{
		"1700000000":             1700000000_000000,
		"1700000000.5":           1700000000_500000,
		"1700000000.123456":      1700000000_123456,
		"1700000000.1234567":     1700000000_123456, // Python's float has a digit more
		"1.7e9":                  1700000000_000000,
		"1.7000000001234567e+09": 1700000000_123456,
		"999999999999.999999":    999999999999_999999,
		"":                       0, "soon": 0, "-5": 0, "0": 0, "nan": 0, "inf": 0, "1.7e15": 0, "1700000000000": 0, "1700000000000000": 0, "9223372036854775807": 0,
	} {
		got := store.ParseSeconds(text)
		if micros == 0 {
			if !got.IsZero() {
				t.Errorf("%q is %s, want no time", text, got)
			}
		} else if got.UnixMicro() != micros {
			t.Errorf("%q is %d µs, want %d", text, got.UnixMicro(), micros)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for want, moment := range map[string]time.Time{
		"1700000000.123456": time.UnixMicro(1700000000123456),
		"1700000000.000000": time.Unix(1700000000, 999),
		"0.000000":          time.Unix(0, 0),
	} {
		if got := store.Seconds(moment); got != want {
			t.Errorf("%s is %q, want %q", moment, got, want)
		}
	}
	for _, moment := range []time.Time{time.UnixMilli(-1500), time.Unix(-1, 0), time.UnixMicro(-1), time.Unix(-1e12, 0)} {
		if got := store.Seconds(moment); got != "0.000000" {
			t.Errorf("before the epoch: %s is %q", moment, got)
		}
	}
}

func TestScheduleBeforeTheEpoch(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{At: time.UnixMilli(-1500)}); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	})
}

func TestHeadAndTail(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("aé", 10) // 30 bytes
	for n := range 31 {
		front, back := store.Head(text, n), store.Tail(text, n)
		if len(front) > n || len(front) < n-1 || !strings.HasPrefix(text, front) || !utf8.ValidString(front) {
			t.Errorf("head of %d bytes: %q", n, front)
		}
		if len(back) > n || len(back) < n-1 || !strings.HasSuffix(text, back) || !utf8.ValidString(back) {
			t.Errorf("tail of %d bytes: %q", n, back)
		}
	}
}

// What a duration is written as is read as the same duration: 1.001 s is not 1.000999999 s.
func TestDurationsAreKept(t *testing.T) {
	t.Parallel()
	for d := time.Millisecond; d < 20*time.Second; d += time.Millisecond {
		if is := store.SecondsDuration(store.DurationText(d)); is != d {
			t.Fatalf("%s was read as %s", d, is)
		}
	}
}
