// Package parity has a handler that calls every service of a host, and writes what each call returned.
package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
)

// Ask is the handler. Its input is a verb, a blank and the URL of an HTTP server. The verbs fail, retry, retry-key,
// fatal and panic end the task in that way. Otherwise Ask calls every service.
func Ask(ctx context.Context, task *sdk.Task) ([]byte, error) {
	switch verb, rest, _ := strings.Cut(string(task.Input), " "); verb {
	case "fail":
		return []byte("half"), errors.New("out of ink")
	case "retry":
		return nil, fmt.Errorf("print: %w", sdk.RetryAfter(errors.New("no paper"), 1500*time.Microsecond))
	case "retry-key":
		return nil, sdk.RetryKeyAfter(errors.New("too many prints"), time.Minute)
	case "fatal":
		return nil, sdk.Fatal(errors.New("no picture"))
	case "panic":
		panic("out of ink")
	default:
		p := &paper{}
		p.describe(ctx, task)
		p.said()
		p.settings()
		p.names()
		p.values()
		p.numbers()
		p.swaps()
		p.lists()
		p.checkpoints()
		p.children()
		p.publications()
		p.dependencies(task)
		p.requests(ctx, rest)
		return p.Bytes(), nil
	}
}

type paper struct{ bytes.Buffer }

func (p *paper) say(what string, answers ...any) {
	fmt.Fprint(p, what, ":")
	for _, answer := range answers {
		switch value := answer.(type) {
		case []byte:
			answer = fmt.Sprintf("%.40q", value)
		case error:
			answer = plain(value)
		}
		fmt.Fprint(p, " ", answer)
	}
	fmt.Fprintln(p)
}

// plain returns the text of an error without the host's reason, which the hosts of tests do not give.
func plain(err error) string {
	asked, _, _ := strings.Cut(err.Error(), ": ")
	for _, refused := range []sdk.HostError{sdk.ErrInvalid, sdk.ErrDenied, sdk.ErrUnavailable, sdk.ErrLimit} {
		if errors.Is(err, refused) {
			return asked + ": " + refused.Error()
		}
	}
	return err.Error()
}

func (p *paper) describe(ctx context.Context, t *sdk.Task) {
	p.say("task", t.ID, t.Queue, t.Tenant, t.Plugin, t.Attempt, t.MaxAttempts, t.Reschedules)
	p.say("more", t.PreviousError(), t.Parent(), t.Key(), t.Traceparent(), t.Headers(), t.Cancelled())
	at, ok := t.Deadline()
	same, _ := ctx.Deadline()
	p.say("context", ok, at.Equal(same), ctx.Err(), ctx.Value("key"))
}

func (p *paper) said() {
	sdk.Progress(math.NaN(), "nothing")
	sdk.Progress(0.5, "half")
	sdk.Progress(7, strings.Repeat("é", 600))
	p.say("log", sdk.Log(sdk.Warning, "text é", "a", "\"x\"\n", "a", ""), sdk.Log(sdk.Info, ""), sdk.Log(sdk.Error+1, "x"),
		sdk.Log(-1, "x"))
	p.say("long log", sdk.Log(sdk.Trace, strings.Repeat("x", 4<<10)), sdk.Log(sdk.Info, "", "odd"))
}

func (p *paper) settings() {
	for _, name := range []string{"size", "none", ""} {
		value, ok := sdk.Config(name)
		p.say("config", value, ok)
		secret, err := sdk.Secret(name)
		p.say("secret", secret, err)
	}
	secret, err := sdk.Secret("api_key")
	p.say("secret", secret, err)
}

func (p *paper) names() {
	long := strings.Repeat("é", 128)
	for _, name := range []string{"", "a", long, long + "x", "a\n", "\x7f", "\u0085", "*", "a b"} {
		for _, b := range []sdk.Bucket{"rw", "r", "other", sdk.Bucket(name)} {
			_, get := b.Get(name)
			set := b.Set(name, nil, 0)
			_, swap := b.Swap(name, nil, nil, 0)
			_, increment := b.Increment(name, 1)
			_, list := b.List(name, "", 1)
			_, after := b.List("", name, 1)
			was, del := b.Delete(name)
			p.say(fmt.Sprintf("%.20q in %.20q", name, string(b)), get, set, swap, increment, list, after, was, del)
		}
	}
}

func (p *paper) values() {
	b := sdk.Bucket("rw")
	more := make([]byte, 512<<10+1)
	most := more[1:]
	p.say("most", b.Set("k", most, 0), b.Set("k", more, 0), b.Set("k", make([]byte, 1<<20+1), 0))
	value, err := b.Get("k")
	p.say("most", len(value), err)
	p.say("too big first", b.Set("\n", more, 0), sdk.Bucket("r").Set("k", more, 0))
	p.say("empty", b.Set("k", nil, time.Hour), b.Set("k2", []byte{}, -time.Hour), b.Set("k3", []byte("x"), 1),
		b.Set("k4", nil, math.MaxInt64))
	p.say("over", b.Set("k2", nil, -1), b.Set("\n", nil, -1), b.Set("k2", more, -1))
	_, over := b.Swap("k2", nil, nil, -time.Millisecond)
	_, err = b.Get("k2")
	p.say("over", over, err)
	value, err = b.Get("k")
	p.say("empty", value == nil, len(value), err)
	value, err = sdk.Bucket("r").Get("given")
	p.say("given", value, err)
}

func (p *paper) numbers() {
	b := sdk.Bucket("rw")
	for _, value := range []string{
		"", "0", "-0", "+1", "01", " 1", "1 ", "1e3", "-5", "9223372036854775807",
		"-9223372036854775808", "9223372036854775808", "x",
	} {
		if err := b.Set("n", []byte(value), time.Hour); err != nil {
			p.say("set", err)
		}
		for _, delta := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
			sum, err := b.Increment("n", delta)
			p.say(fmt.Sprintf("%q and %d", value, delta), sum, err)
		}
	}
	_, err := b.Delete("n")
	sum, least := b.Increment("n", math.MinInt64)
	p.say("from nothing", err, sum, least)
}

func (p *paper) swaps() {
	b := sdk.Bucket("rw")
	_, err := b.Delete("s")
	p.say("swap", err)
	for _, old := range [][]byte{[]byte("x"), {}, nil, nil, {}, []byte("one"), []byte("two"), make([]byte, 600<<10)} {
		present, err := b.Swap("s", old, []byte("one"), time.Hour)
		p.say("swap", present, present == nil, err)
	}
	present, err := b.Swap("s", []byte("one"), nil, 0)
	p.say("swap", present, err)
	present, err = b.Swap("s", nil, []byte("two"), 0)
	p.say("swap an empty one", present, present == nil, err)
	_, err = b.Swap("s", []byte{}, make([]byte, 512<<10+1), 0)
	p.say("swap", err)
}

func (p *paper) lists() {
	b := sdk.Bucket("list")
	for _, key := range []string{"b", "a", "ab", "a b", "é", "Z", "abc", "-", "+", "b\U0010ffff"} {
		if err := b.Set(key, nil, 0); err != nil {
			p.say("set", err)
		}
	}
	for _, at := range []struct {
		prefix, after string
		limit         int
	}{
		{"", "", 10},
		{"", "", 3},
		{"a", "", 10},
		{"a", "ab", 10},
		{"a", "Z", 10},
		{"a", "b", 10},
		{"", "b", 10},
		{"b", "", 10},
		{"x", "", 10},
		{"", "é", 10},
		{"+", "", 10},
		{"", "+", 1},
		{"", "", 0},
		{"", "", -1},
		{"", "", 1000},
		{"", "", 1001},
		{"", "", 1<<32 + 1},
		{"", "", -1<<32 + 1},
	} {
		keys, err := b.List(at.prefix, at.after, at.limit)
		p.say(fmt.Sprintf("list %q after %q", at.prefix, at.after), len(keys), fmt.Sprintf("%q", keys), err)
	}
}

func (p *paper) checkpoints() {
	value, ok, err := sdk.Checkpoint()
	p.say("checkpoint", value, ok, err)
	p.say("save", sdk.SaveCheckpoint([]byte("one")), sdk.SaveCheckpoint(make([]byte, 1<<20+1)))
	value, ok, err = sdk.Checkpoint()
	p.say("checkpoint", value, ok, err)
	p.say("save", sdk.SaveCheckpoint(nil))
	value, ok, err = sdk.Checkpoint()
	p.say("checkpoint", len(value), ok, err)
	p.say("save", sdk.SaveCheckpoint(make([]byte, 1<<20)))
}

func (p *paper) children() {
	for _, queue := range []string{"mail", "mail.out", "done", "other"} {
		id, err := sdk.Enqueue(queue, []byte("body"), nil)
		p.say(fmt.Sprintf("enqueue %.20q", queue), id != "", err)
	}
	low, high := 0, 100
	for i, options := range []*sdk.EnqueueOptions{
		{},
		{ID: "mine"},
		{ID: "mine"},
		{Key: "k"},
		{Labels: map[string]string{"a": "b\"", "c": ""}},
		{Priority: &low},
		{Priority: &high},
		{Delay: time.Second},
		{At: time.UnixMilli(1700000000000)},
		{MaxAttempts: 3},
		{Timeout: time.Minute},
		{After: []string{"mine", "other"}},
		{After: []string{"mine"}, When: "ended"},
		{FairKey: "f", FairWeight: 1000, ConcurrencyKey: "c", MaxConcurrent: 1_000_000},
		{Unique: &sdk.Unique{}},
		{Unique: &sdk.Unique{Key: "u", For: time.Hour}},
	} {
		id, err := sdk.Enqueue("done", []byte{byte(i)}, options)
		if options.ID == "" {
			id = ""
		}
		p.say(fmt.Sprintf("options %d", i), id, err)
	}
}

func (p *paper) publications() {
	for _, topic := range []string{"orders", "bills.paid", "other"} {
		id, err := sdk.Publish(topic, []byte("body"), nil)
		p.say("publish "+topic, id != "", err)
	}
	for _, options := range []*sdk.PublishOptions{
		{},
		{ID: "mine"},
		{Attributes: map[string]string{"type": "order.made \""}},
	} {
		id, err := sdk.Publish("orders", nil, options)
		if options.ID == "" {
			id = ""
		}
		p.say("publish with", id, err)
	}
}

func (p *paper) dependencies(t *sdk.Task) {
	list, err := t.Dependencies()
	p.say("dependencies", list, err)
	for _, d := range append(list, sdk.Dependency{}, sdk.Dependency{ID: "other"}) {
		result, err := t.ResultOf(d.ID)
		p.say("result", result, result == nil, err)
	}
}

func (p *paper) requests(ctx context.Context, url string) {
	for _, r := range []fetch.Request{
		{URL: url + "/"},
		{
			URL: url + "/echo?a=b", Method: "POST", Header: map[string][]string{"X-two": {"1", "2"}, "content-type": {"text/x"}},
			Body: []byte("body\x00"),
		},
		{URL: url + "/moved"},
		{URL: url + "/missing"},
		{URL: url + "/", Method: "DELETE"},
		{URL: url + "/", Method: "get"},
		{URL: url + "/", Timeout: time.Minute},
		{URL: "/", Timeout: time.Minute},
		{URL: ""},
		{URL: "ftp://127.0.0.1/"},
		{URL: "http://me:secret@127.0.0.1/path?secret#secret"},
		{URL: "http://denied.example/path?secret#secret"},
	} {
		answer, err := fetch.Do(ctx, r)
		if err != nil {
			p.say("error", strings.ReplaceAll(err.Error(), url, "URL"), errors.Is(err, sdk.ErrInvalid),
				errors.Is(err, sdk.ErrDenied), errors.Is(err, sdk.ErrUnavailable))
			continue
		}
		for _, name := range []string{"date", "content-length"} {
			delete(answer.Header, name)
		}
		p.say("answer", answer.Status, answer.Body, answer.Err())
		for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
			p.say("header", name, fmt.Sprintf("%q", answer.Header[name]), answer.Value(strings.ToUpper(name)))
		}
	}
	answer, err := fetch.Get(ctx, url+"/")
	p.say("get", answer.Status, err)
	answer, err = fetch.Post(ctx, url+"/echo", "text/plain", []byte("x"))
	p.say("post", answer.Status, answer.Body, err)
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = fetch.Get(over, url+"/")
	p.say("over", errors.Is(err, context.Canceled))
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = fetch.Get(short, url+"/never")
	p.say("never", errors.Is(err, context.DeadlineExceeded), errors.Is(err, sdk.ErrUnavailable))
	_, err = fetch.Do(ctx, fetch.Request{URL: url + "/never", Timeout: 20 * time.Millisecond})
	p.say("never", errors.Is(err, context.DeadlineExceeded), errors.Is(err, sdk.ErrUnavailable))
}
