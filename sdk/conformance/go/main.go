// Command go is the guest in Go for the conformance tests. It makes the calls that its input lists, one per line, and
// writes the answer to each. README.md, one folder up, explains how calls are written.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/typed"
)

func main() { sdk.Handle(handle) }

//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(handle) }

// guest is the state of one task.
type guest struct {
	ctx    context.Context //nolint:containedctx // of the handler's call
	task   *sdk.Task
	output bytes.Buffer
	ending error // the task's error, nil for none, once ended is true
	ended  bool  // a call has ended the task
}

const maxWords = 64

// calls has a function for each call, by verb. The first word of a call is the verb. Each function gets as many as
// maxWords; missing words are "".
var calls = map[string]func(g *guest, words []string){
	"write": func(g *guest, w []string) { g.output.WriteString(text(w[1])) },
	"end":   (*guest).end,
	"retry": func(g *guest, w []string) {
		again, ms := sdk.RetryAfter, number(w[1])
		if ms < 0 {
			again, ms = sdk.RetryKeyAfter, -ms
		}
		g.ending, g.ended = again(errors.New(text(w[2])), time.Duration(ms)*time.Millisecond), true
	},
	"trap": func(*guest, []string) {
		go func() { panic("trap") }() // a panic in the handler's goroutine would only become the handler's error
		select {}
	},
	"json": func(g *guest, _ []string) {
		_, g.ending = typed.JSON(func(context.Context, *sdk.Task, any) (any, error) { return nil, nil })(g.ctx, g.task)
		g.ended = true
	},
	"size": func(g *guest, w []string) { g.tell(w[0], nil, strconv.Itoa(len(g.task.Input))) },
	"sum": func(g *guest, w []string) {
		sum := fnv.New32a()
		sum.Write(g.task.Input)
		g.tell(w[0], nil, strconv.FormatUint(uint64(sum.Sum32()), 10))
	},
	"text":      (*guest).text,
	"header":    (*guest).header,
	"number":    (*guest).number,
	"deadline":  (*guest).deadline,
	"cancelled": func(g *guest, w []string) { g.tell(w[0], nil, truth(g.task.Cancelled())) },
	"await": func(g *guest, w []string) {
		sdk.Progress(0, "waiting")
		<-g.ctx.Done()
		g.tell(w[0], nil)
	},
	"log":      (*guest).log,
	"progress": func(g *guest, w []string) { sdk.Progress(float64(number(w[1]))/100, text(w[2])); g.tell(w[0], nil) },
	"save":     func(g *guest, w []string) { g.tell(w[0], sdk.SaveCheckpoint([]byte(text(w[1])))) },
	"load":     (*guest).load,
	"get": func(g *guest, w []string) {
		value, err := sdk.Bucket(text(w[1])).Get(text(w[2]))
		g.tell(w[0], err, string(value))
	},
	"set": func(g *guest, w []string) {
		g.tell(w[0], sdk.Bucket(text(w[1])).Set(text(w[2]), []byte(text(w[3])), time.Duration(number(w[4]))*time.Millisecond))
	},
	"delete": func(g *guest, w []string) {
		was, err := sdk.Bucket(text(w[1])).Delete(text(w[2]))
		g.tell(w[0], err, truth(was))
	},
	"increment": func(g *guest, w []string) {
		sum, err := sdk.Bucket(text(w[1])).Increment(text(w[2]), number(w[3]))
		g.tell(w[0], err, strconv.FormatInt(sum, 10))
	},
	"swap":   (*guest).swap,
	"list":   (*guest).list,
	"http":   (*guest).http,
	"config": (*guest).config,
	"secret": func(g *guest, w []string) {
		value, err := sdk.Secret(text(w[1]))
		g.tell(w[0], err, string(value))
	},
	"clock":    (*guest).clock,
	"sleep":    (*guest).sleep,
	"random":   (*guest).random,
	"remember": (*guest).remember,
	"enqueue":  (*guest).enqueue,
	"publish":  (*guest).publish,
	"sql":      (*guest).sql,
	"kinds":    func(g *guest, w []string) { g.tellSQL(w[0], copyKinds(sdk.Database(text(w[1])))) },
	"commit":   func(g *guest, w []string) { g.tellSQL(w[0], sdk.Database(text(w[1])).Commit()) },
	"rollback": func(g *guest, w []string) { g.tellSQL(w[0], sdk.Database(text(w[1])).Rollback()) },
	"step":     (*guest).step,
	"dependencies": func(g *guest, w []string) {
		var all []string
		list, err := g.task.Dependencies()
		for _, d := range list {
			all = append(all, d.ID+" "+d.End)
		}
		g.tell(w[0], err, all...)
	},
	"result": func(g *guest, w []string) {
		result, err := g.task.ResultOf(text(w[1]))
		g.tell(w[0], err, string(result))
	},
	"start": (*guest).start,
}

func (g *guest) end(w []string) {
	g.ended = true
	switch err := errors.New(text(w[2])); w[1] {
	case "0":
	case "65":
		g.ending = sdk.Fatal(err)
	case "75":
		g.ending = sdk.Retry(err)
	default:
		g.ending = err
	}
}

func (g *guest) text(w []string) {
	fields := []func() string{
		func() string { return g.task.ID }, func() string { return g.task.Queue }, func() string { return g.task.Tenant },
		func() string { return g.task.Plugin }, g.task.PreviousError, g.task.Parent, g.task.Key, g.task.Traceparent,
	}
	g.tell(w[0], nil, fields[number(w[1])]())
}

func (g *guest) header(w []string) { g.tell(w[0], nil, g.task.Headers()[w[1]]) }

func (g *guest) number(w []string) {
	n := g.task.Attempt
	switch w[1] {
	case "1":
		n = g.task.MaxAttempts
	case "4":
		n = g.task.Reschedules
	}
	g.tell(w[0], nil, strconv.Itoa(n))
}

// deadline writes the deadline in minutes, because the clocks of the host and of Redis differ.
func (g *guest) deadline(w []string) {
	var minutes int64
	if deadline, ok := g.ctx.Deadline(); ok {
		minutes = deadline.Round(time.Minute).Unix() / 60
	}
	g.tell(w[0], nil, strconv.FormatInt(minutes, 10))
}

func (g *guest) log(w []string) {
	var fields []string
	for i := 3; w[i] != ""; i++ {
		fields = append(fields, text(w[i]))
	}
	g.tell(w[0], sdk.Log(sdk.Level(number(w[1])), text(w[2]), fields...))
}

func (g *guest) load(w []string) {
	value, ok, err := sdk.Checkpoint()
	if err == nil && !ok {
		err = sdk.ErrNotFound
	}
	g.tell(w[0], err, string(value))
}

func (g *guest) swap(w []string) {
	old := []byte(text(w[3]))
	if w[3] == "!" {
		old = nil
	}
	present, err := sdk.Bucket(text(w[1])).Swap(text(w[2]), old, []byte(text(w[4])),
		time.Duration(number(w[5]))*time.Millisecond)
	if err != nil && present != nil {
		g.writeAnswer(w[0], err, string(present))
		return
	}
	g.tell(w[0], err)
}

func (g *guest) list(w []string) {
	keys, err := sdk.Bucket(text(w[1])).List(text(w[2]), text(w[3]), int(number(w[4])))
	g.tell(w[0], err, keys...)
}

func (g *guest) http(w []string) {
	response, err := fetch.Do(g.ctx, fetch.Request{
		Method: text(w[1]), URL: text(w[2]), Header: map[string][]string{"X-Ask": {text(w[3])}}, Body: []byte(text(w[4])),
		Timeout: time.Duration(number(w[5])) * time.Millisecond,
	})
	if err != nil {
		g.tell(w[0], err)
		return
	}
	g.tell(w[0], nil, strconv.Itoa(response.Status), response.Value("X-Answer"), string(response.Body))
}

func (g *guest) config(w []string) {
	value, ok := sdk.Config(text(w[1]))
	if !ok {
		g.tell(w[0], sdk.ErrNotFound)
		return
	}
	g.tell(w[0], nil, value)
}

func (g *guest) clock(w []string) {
	const pause = time.Millisecond
	now := time.Now()
	<-time.After(pause)
	switch {
	case w[1] == "0" && now.Unix() < 1_700_000_000:
		g.tell(w[0], nil, "too early")
	case w[1] == "1" && time.Since(now) < pause:
		g.tell(w[0], nil, "back")
	default:
		g.tell(w[0], nil)
	}
}

func (g *guest) sleep(w []string) {
	before, d := time.Now(), time.Duration(number(w[1]))*time.Millisecond
	<-time.After(d)
	if time.Since(before) < d {
		g.tell(w[0], nil, "too short")
		return
	}
	g.tell(w[0], nil)
}

func (g *guest) random(w []string) {
	var b [8]byte
	_, err := rand.Read(b[:])
	g.tell(w[0], err, hex.EncodeToString(b[:]))
}

var remembered string

func (g *guest) remember(w []string) {
	g.tell(w[0], nil, remembered)
	remembered = text(w[1])
}

func (g *guest) enqueue(w []string) {
	var options *sdk.EnqueueOptions
	for i := 3; w[i] != ""; i += 2 {
		if options == nil {
			options = &sdk.EnqueueOptions{}
		}
		value := text(w[i+1])
		n := int(number(value))
		switch w[i] {
		case "id":
			options.ID = value
		case "key":
			options.Key = value
		case "label":
			options.Labels = map[string]string{"kit": value}
		case "header":
			options.Headers = map[string]string{"kit": value}
		case "unique":
			options.Unique = &sdk.Unique{Key: value}
		case "after":
			options.After = []string{value}
		case "when":
			options.When = value
		case "priority":
			options.Priority = &n
		case "delay":
			options.Delay = time.Duration(n) * time.Millisecond
		case "at":
			options.At = time.UnixMilli(int64(n))
		case "attempts":
			options.MaxAttempts = n
		case "fair_key":
			options.FairKey = value
		case "fair_weight":
			options.FairWeight = n
		case "concurrency_key":
			options.ConcurrencyKey = value
		case "max_concurrent":
			options.MaxConcurrent = n
		case "timeout":
			options.Timeout = time.Duration(n) * time.Millisecond
		}
	}
	id, err := sdk.Enqueue(text(w[1]), []byte(text(w[2])), options)
	g.tell(w[0], err, id)
}

func (g *guest) publish(w []string) {
	var options sdk.PublishOptions
	topic := ""
	for i := 3; w[i] != ""; i += 2 {
		switch value := text(w[i+1]); w[i] {
		case "topic":
			topic = value
		case "id":
			options.ID = value
		case "attribute":
			options.Attributes = map[string]string{"kit": value}
		}
	}
	id, err := sdk.Publish(topic, []byte(text(w[2])), &options)
	g.tell(w[0], err, id)
}

// atStart has the answers to the calls that were made before there was a task, by verb.
var atStart = askAtStart()

func askAtStart() map[string]error {
	var config, clock, random error
	if time.Now().Unix() < 1_700_000_000 {
		clock = errors.New("too early")
	}
	if _, ok := sdk.Config("size"); !ok {
		config = sdk.ErrNotFound
	}
	var b [1]byte
	_, random = rand.Read(b[:])
	_, get := sdk.Bucket("kit").Get("start")
	_, secret := sdk.Secret("api_key")
	_, _, load := sdk.Checkpoint()
	return map[string]error{
		"config": config, "log": sdk.Log(sdk.Info, "start"), "random": random, "clock": clock, "get": get, "secret": secret,
		"save": sdk.SaveCheckpoint([]byte("start")), "load": load,
	}
}

func (g *guest) start(w []string) { g.tell(w[0], atStart[w[1]]) }

// tell writes the answer to a call: its error or, if err is nil, its data.
func (g *guest) tell(verb string, err error, data ...string) {
	if err != nil {
		data = nil
	}
	g.writeAnswer(verb, err, data...)
}

// writeAnswer writes the answer to a call: both its error and its data. If data is longer than shown, only its length
// is written.
func (g *guest) writeAnswer(verb string, err error, data ...string) {
	const shown = 64
	g.output.WriteString(verb + " " + nameOf(err))
	for _, d := range data {
		if len(d) > shown {
			d = "#" + strconv.Itoa(len(d))
		}
		g.output.WriteString(" " + d)
	}
	g.output.WriteByte('\n')
}

func nameOf(err error) string {
	names := map[sdk.HostError]string{
		sdk.ErrInvalid: "EINVAL", sdk.ErrDenied: "EDENIED", sdk.ErrNotFound: "ENOTFOUND", sdk.ErrTooBig: "ETOOBIG",
		sdk.ErrQuota: "EQUOTA", sdk.ErrConflict: "ECONFLICT", sdk.ErrLost: "ECANCELED", sdk.ErrUnavailable: "EAGAIN",
		sdk.ErrNoHost: "ESTATE", sdk.ErrLimit: "ELIMIT",
	}
	e, ok := errors.AsType[sdk.HostError](err)
	switch {
	case err == nil:
		return "ok"
	case ok:
		return names[e]
	}
	return err.Error()
}

func truth(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func number(word string) int64 {
	n, _ := strconv.ParseInt(word, 10, 64) // a missing word is 0
	return n
}

// text decodes a word: %61 is a byte, a trailing *3 repeats everything before it, and - alone is the empty text.
func text(word string) string {
	if word == "-" {
		return ""
	}
	times := 1
	if i := strings.LastIndexByte(word, '*'); i > 0 {
		if n, err := strconv.Atoi(word[i+1:]); err == nil {
			word, times = word[:i], n
		}
	}
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] == '%' {
			n, _ := strconv.ParseUint(word[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
			continue
		}
		b.WriteByte(word[i])
	}
	return strings.Repeat(b.String(), times)
}

func handle(ctx context.Context, task *sdk.Task) ([]byte, error) {
	g := &guest{ctx: ctx, task: task}
	for line := range strings.Lines(string(task.Input)) {
		words := make([]string, maxWords)
		copy(words, strings.Split(strings.TrimSuffix(line, "\n"), " "))
		switch words[0] {
		case "on": // the call is made only in this attempt
			if number(words[1]) != int64(task.Attempt) {
				continue
			}
			words = words[2:]
		case "once": // the call is made only in a run that finds no checkpoint; it saves one
			if _, ok, err := sdk.Checkpoint(); ok || err != nil || sdk.SaveCheckpoint([]byte("once")) != nil {
				continue
			}
			words = words[1:]
		}
		if words[0] == "" || words[0][0] == '#' {
			continue
		}
		call := calls[words[0]]
		if call == nil {
			g.output.WriteString(words[0] + " is no call of this guest\n")
			continue
		}
		if call(g, words); g.ended {
			break
		}
	}
	return g.output.Bytes(), g.ending
}
