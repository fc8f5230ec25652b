package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const aTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Headers come back wherever a task is read, traceparent among them, whichever way it was set.
func TestHeaders(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		given := map[string]string{"x-id": "7", "x-empty": "", "tracestate": "a=1,b=<2>"}
		all := maps.Clone(given)
		all["traceparent"] = aTrace
		for id, o := range map[string]queue.Options{
			"field": {Traceparent: aTrace, Headers: given}, "header": {Headers: all}, "both": {Traceparent: aTrace, Headers: all},
		} {
			o.ID = id
			w.enqueue(t, "q", "x", o)
			if task := w.task(t, id); task.Traceparent != aTrace || !maps.Equal(task.Headers, all) {
				t.Errorf("%s: %q %v", id, task.Traceparent, task.Headers)
			}
			if raw := w.rdb.HGet(w.ctx, w.Store().Keys.Task(id), "headers").Val(); strings.Contains(raw, "traceparent") {
				t.Errorf("%s: the field is %s", id, raw)
			}
			list := must[[]*queue.Task](t)(manage.New(w.Client).Queue("q").List(w.ctx, manage.ListOptions{Limit: 1}))
			if len(list) != 1 || !maps.Equal(list[0].Headers, all) {
				t.Errorf("%s in a list: %+v", id, list)
			}
		}
		node := w.node(t, "q")
		for range 3 {
			if r := w.reserve(t, node, "q", true); r.Traceparent != aTrace || !maps.Equal(r.Headers, all) {
				t.Errorf("%s reserved with %q %v", r.ID, r.Traceparent, r.Headers)
			}
		}
	})
}

// A task without headers has no field for them, and what depends on the order of its fields still works for one that has.
func TestHeadersKeepTheOtherFields(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "x", queue.Options{ID: "plain"})
		if w.rdb.HExists(w.ctx, w.Store().Keys.Task("plain"), "headers").Val() {
			t.Error("a task without headers has the field")
		}
		for _, id := range []string{"plain", "traced"} {
			if id == "traced" {
				w.enqueue(t, "q", "x", queue.Options{ID: id, Headers: map[string]string{"a": "b"}, Key: "k", Retry: queue.Retry{MaxAttempts: 5}})
			}
			node, hold := w.held(t, "q")
			w.settle(t, node, "q", listen.Settlement{Claim: hold, Requeue: listen.RequeueRetry, Failure: &queue.Failure{Reason: queue.ReasonError, Message: "no"}})
			r := w.reserve(t, node, "q", true)
			if r.ID != id || r.Attempts != 1 || r.Last.Message != "no" {
				t.Errorf("%+v", r)
			}
			if id == "traced" && (r.Headers["a"] != "b" || r.Retry.MaxAttempts != 5 || r.Key != "k") {
				t.Errorf("%+v", r)
			}
			w.settle(t, node, "q", listen.Settlement{Claim: r.Claim()})
		}
	})
}

// A dead letter has the headers of its task.
func TestLettersKeepTheHeaders(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		headers := map[string]string{"x-id": "7", "traceparent": aTrace}
		id := w.enqueue(t, "q", "", queue.Options{Headers: headers})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		if letter := w.task(t, w.task(t, id).DeadID); !maps.Equal(letter.Headers, headers) {
			t.Errorf("%+v", letter)
		}
	})
}

func TestValidateHeaders(t *testing.T) {
	t.Parallel()
	many := make(map[string]string)
	for i := range queue.MaxHeaders + 1 {
		many[fmt.Sprint("h", i)] = ""
	}
	for name, c := range map[string]struct {
		options queue.Options
		want    string // of the error
	}{
		"upper case":   {queue.Options{Headers: map[string]string{"X-Id": "7"}}, `header "X-Id": write its name in lower case: x-id`},
		"no name":      {queue.Options{Headers: map[string]string{"": "7"}}, `header "": use a name of a-z`},
		"colon":        {queue.Options{Headers: map[string]string{"a:b": "7"}}, `header "a:b": use a name of a-z`},
		"not ASCII":    {queue.Options{Headers: map[string]string{"ü": "7"}}, `header "ü": use a name of a-z`},
		"line break":   {queue.Options{Headers: map[string]string{"a": "7\r\nb: 8"}}, `header a: "7\r\nb: 8": use printable`},
		"separator":    {queue.Options{Headers: map[string]string{"a": "7\u2028b: 8"}}, `header a: "7\u2028b: 8": use printable`},
		"escape":       {queue.Options{Headers: map[string]string{"a": "\x1b[2J"}}, `header a: "\x1b[2J": use printable`},
		"not UTF-8":    {queue.Options{Headers: map[string]string{"a": "\xff"}}, `header a: "\xff": use printable`},
		"many":         {queue.Options{Headers: many}, "33 headers: use at most 32 beside traceparent"},
		"large":        {queue.Options{Headers: map[string]string{"a": strings.Repeat("x", queue.MaxHeaderBytes)}}, "headers of 8193 bytes: use at most 8192"},
		"traceparent":  {queue.Options{Headers: map[string]string{"traceparent": "00-1"}}, `traceparent "00-1": use VERSION-TRACE-PARENT-FLAGS`},
		"version ff":   {queue.Options{Traceparent: "ff" + aTrace[2:]}, "use VERSION-TRACE-PARENT-FLAGS"},
		"no trace":     {queue.Options{Traceparent: "00-00000000000000000000000000000000-b7ad6b7169203331-01"}, "use VERSION-TRACE-PARENT-FLAGS"},
		"no parent":    {queue.Options{Traceparent: aTrace[:36] + "0000000000000000-01"}, "use VERSION-TRACE-PARENT-FLAGS"},
		"tail":         {queue.Options{Traceparent: aTrace + "-more"}, "use VERSION-TRACE-PARENT-FLAGS"},
		"two of these": {queue.Options{Traceparent: aTrace, Headers: map[string]string{"traceparent": strings.Replace(aTrace, "a", "b", 1)}}, "give one of them"},
	} {
		if err := c.options.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(many, "h0")
	inherited := map[string]string{"traceparent": aTrace, "tracestate": "a=1"}
	for name, o := range map[string]queue.Options{
		"most":  {Headers: queue.InheritTrace(inherited, many)},
		"size":  {Headers: queue.InheritTrace(inherited, map[string]string{"a": strings.Repeat("x", queue.MaxHeaderBytes-1)})},
		"signs": {Headers: map[string]string{"a-b_c.d!#$%&'*+^`|~0": "ä ö 😀 \"<>&\\"}},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What somebody wrote by hand is left out where it is no header.
func TestDamagedHeaders(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for text, want := range map[string]map[string]string{
			"no JSON":                            nil,
			`{"a": 1}`:                           nil,
			`{"a": "1", "B": "2", "c": "\n"}`:    {"a": "1"},
			`["a"]`:                              nil,
			`{"traceparent": "00-1", "a": "ok"}`: {"a": "ok"},
			`{"a": "` + strings.Repeat("x", queue.MaxHeaderBytes) + `"}`: nil,
		} {
			id := w.enqueue(t, "q", "x", queue.Options{Key: "k"})
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "headers", text, "traceparent", "x\ny")
			if task := w.task(t, id); !maps.Equal(task.Headers, want) {
				t.Errorf("%s: %v", text, task.Headers)
			}
		}
	})
}

// A client's headers come from the context, and those of a task come first.
func TestHeadersOfTheContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	w := newWorld(t, queuetest.Shared(t).URL())
	w.Config().Headers = func(ctx context.Context) map[string]string {
		headers, _ := ctx.Value(key{}).(map[string]string)
		return headers
	}
	const other = "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01"
	ctx := context.WithValue(w.ctx, key{}, map[string]string{"traceparent": aTrace, "tracestate": "a=1", "x-id": "7"})
	specs := []queue.Spec{
		{Options: queue.Options{ID: "all"}},
		{Options: queue.Options{ID: "some", Headers: map[string]string{"x-id": "8"}}},
		{Options: queue.Options{ID: "field", Traceparent: other}},
		{Options: queue.Options{ID: "header", Headers: map[string]string{"traceparent": other}}},
	}
	if _, err := w.Queue("q").EnqueueMany(ctx, specs); err != nil {
		t.Fatal(err)
	}
	w.enqueue(t, "q", "", queue.Options{ID: "none"})
	odd := context.WithValue(w.ctx, key{}, map[string]string{"traceparent": aTrace, "tracestate": "a=\n"})
	if _, err := w.Queue("q").Enqueue(odd, nil, queue.Options{ID: "odd", Headers: map[string]string{"tracestate": "b=2"}}); err != nil {
		t.Error(err)
	}
	if _, err := w.Subscribe(ctx, queue.Subscription{ID: "s", Topic: "news", Queue: "readers"}); err != nil {
		t.Fatal(err)
	}
	for state, o := range map[string]queue.PublishOptions{
		"a=1": {ID: "by-context"}, "b=2": {ID: "by-option", Traceparent: other, Tracestate: "b=2"}, "": {ID: "odd-state", Traceparent: other, Tracestate: "a=\n"},
	} {
		if _, err := w.Publish(ctx, "news", nil, o); err != nil {
			t.Fatal(err)
		}
		trace := cmp.Or(o.Traceparent, aTrace)
		if p, err := w.Publication(ctx, o.ID); err != nil || p.Traceparent != trace || p.Tracestate != state {
			t.Errorf("%s: %+v, %v", o.ID, p, err)
		}
		if task := w.task(t, queue.PublishedID(o.ID, "s")); task.Traceparent != trace || task.Headers["tracestate"] != state {
			t.Errorf("%s: %v", o.ID, task.Headers)
		}
	}
	for id, want := range map[string]map[string]string{
		"all": {"traceparent": aTrace, "tracestate": "a=1", "x-id": "7"}, "some": {"traceparent": aTrace, "tracestate": "a=1", "x-id": "8"},
		"field": {"traceparent": other, "x-id": "7"}, "header": {"traceparent": other, "x-id": "7"}, "none": nil, "odd": {"traceparent": aTrace},
	} {
		if task := w.task(t, id); !maps.Equal(task.Headers, want) {
			t.Errorf("%s: %v, want %v", id, task.Headers, want)
		}
	}
	if specs[0].Headers != nil || len(specs[1].Headers) != 1 {
		t.Errorf("the caller's specs are changed: %+v", specs)
	}
}

func TestIsJSON(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"": true, "application/json": true, "text/json": true, "Text/JSON; charset=utf-8": true, "image/svg+json": true, "application/problem+JSON": true,
		"text/plain": false, "application/jsonl": false, "application/vnd.json": false, "json": false, ";": false,
	} {
		if queue.IsJSON(contentType) != want {
			t.Errorf("%q: %t", contentType, !want)
		}
	}
}
