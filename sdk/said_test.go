package sdk

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	zero, high := 0, 90
	for name, tt := range map[string]struct {
		options *EnqueueOptions
		want    string
	}{
		"Nil":  {nil, ``},
		"Zero": {&EnqueueOptions{}, `{}`},
		"All": {
			&EnqueueOptions{
				ID: "a", Key: "b\"\n", Labels: map[string]string{"z": "1", "a": "é"}, Priority: &high,
				Delay: time.Second, At: time.UnixMilli(1700000000123), MaxAttempts: 3, Timeout: time.Minute,
				FairKey: "f", FairWeight: 2, ConcurrencyKey: "c", MaxConcurrent: 3, Unique: &Unique{Key: "u", For: time.Hour},
			},
			`{"id":"a","key":"b\"\u000a","labels":{"a":"é","z":"1"},"priority":90,"delay_ms":1000,"at_ms":1700000000123,` +
				`"max_attempts":3,"timeout_ms":60000,"fair_key":"f","fair_weight":2,"concurrency_key":"c","max_concurrent":3,` +
				`"unique":{"key":"u","for_ms":3600000}}`,
		},
		"Least":    {&EnqueueOptions{Priority: &zero, Delay: 1, Timeout: time.Millisecond + 1, Unique: &Unique{}}, `{"priority":0,"delay_ms":1,"timeout_ms":2,"unique":{}}`},
		"Negative": {&EnqueueOptions{Delay: -time.Second, MaxAttempts: -1, Unique: &Unique{For: -1500 * time.Microsecond}}, `{"delay_ms":-1000,"max_attempts":-1,"unique":{"for_ms":-2}}`},
		"At":       {&EnqueueOptions{At: time.UnixMilli(1700000000123).Add(1)}, `{"at_ms":1700000000124}`},
		"Over":     {&EnqueueOptions{Delay: -1}, `{"delay_ms":-1}`},
		"Forever":  {&EnqueueOptions{Delay: 1<<63 - 1}, `{"delay_ms":9223372036855}`},
		"Text":     {&EnqueueOptions{ID: "\xff\x00"}, `{"id":"` + "\ufffd" + `\u0000"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.options.json(); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWriteLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		level        Level
		text, fields string
		want         string
		err          error
	}{
		{Trace, "a", "", "trace: a\n", nil},
		{Debug, "a", `{"b":"c"}`, `debug: a {"b":"c"}` + "\n", nil},
		{Info, "a", "", "a\n", nil},
		{Warning, "", "", "warning: \n", nil},
		{Error, "a\r\nb", "", `error: a\x0d\x0ab` + "\n", nil},
		{Info, "quern:progress=1", "", " quern:progress=1\n", nil},
		{Error, "quern:progress=1", "", "error: quern:progress=1\n", nil},
		{Info, strings.Repeat("x", 100_000), "", strings.Repeat("x", 100_000) + "\n", nil},
		{Info, "", strings.Repeat("x", maxFields+1), "", ErrTooBig},
		{Trace - 1, "", "", "", ErrInvalid},
		{Error + 1, "", "", "", ErrInvalid},
	} {
		var stderr bytes.Buffer
		if err := writeLine(&stderr, tt.level, tt.text, tt.fields); !errors.Is(err, tt.err) || stderr.String() != tt.want {
			t.Errorf("%d %.20q %.20q: %.40q, %v, want %.40q, %v", tt.level, tt.text, tt.fields, stderr.String(), err, tt.want, tt.err)
		}
	}
}

func TestLogErrOdd(t *testing.T) {
	t.Parallel()
	if err := Log(Info, "a", "name"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// Without a host there is none of its services.
func TestErrNoHost(t *testing.T) {
	t.Parallel()
	b := Bucket("b")
	_, get := b.Get("k")
	_, del := b.Delete("k")
	_, increment := b.Increment("k", 1)
	_, swap := b.Swap("k", nil, nil, 0)
	_, list := b.List("", "", 1)
	_, secret := Secret("s")
	_, _, load := Checkpoint()
	_, enqueue := Enqueue("q", nil, nil)
	for i, err := range []error{get, b.Set("k", nil, 0), del, increment, swap, list, secret, load, SaveCheckpoint(nil), enqueue} {
		if !errors.Is(err, ErrNoHost) {
			t.Errorf("%d: %v", i, err)
		}
	}
	task := &Task{}
	_, configured := Config("c")
	_, limited := task.Deadline()
	if configured || limited || task.Cancelled() || task.PreviousError()+task.Parent()+task.Key()+task.Traceparent() != "" {
		t.Error("somebody has answered")
	}
}

func TestPublishOptions(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]*PublishOptions{
		`{"topic":"a\"b"}`: nil,
		`{"topic":"a\"b","id":"p","attributes":{"tenant":"acme","type":"made"}}`: {ID: "p", Attributes: map[string]string{"type": "made", "tenant": "acme"}},
	} {
		if got := options.json(`a"b`); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
