package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/importer/api"
	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/sdktest"
	"github.com/quern-project/quern/sdk/typed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a host that grants what the manifest does, with a service behind it that counts.
func harness(t *testing.T, service http.Handler) *sdktest.Harness {
	t.Helper()
	h := sdktest.New(t)
	h.Config["rate"], h.Config["burst"] = "1000", "1000"
	h.Bucket("limits")
	h.Bucket("records")
	h.HTTP = sdktest.Serve(service)
	return h
}

var importTask = sdktest.Task{Input: []byte(`{"url": "http://api.example.com/records?kind=new"}`)}

// counted counts requests by their cursor, and may do something before one is served.
type counted struct {
	http.Handler
	before func(cursor string, asked int, r *http.Request)

	mu    sync.Mutex
	asked map[string]int // by cursor; guarded by mu
	last  time.Time      // guarded by mu
}

func newCounted(service http.Handler) *counted {
	return &counted{Handler: service, asked: map[string]int{}}
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cursor := r.URL.Query().Get("cursor")
	c.mu.Lock()
	c.asked[cursor]++
	c.last = time.Now()
	asked := c.asked[cursor]
	c.mu.Unlock()
	if c.before != nil {
		c.before(cursor, asked, r)
	}
	c.Handler.ServeHTTP(w, r)
}

func (c *counted) count(cursor string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[cursor]
}

func TestLoad(t *testing.T) {
	t.Parallel()
	service := newCounted(api.New(api.Records(50), 20))
	service.before = func(_ string, _ int, r *http.Request) {
		if r.URL.Query().Get("kind") != "new" {
			t.Errorf("%s: the query of the task is gone", r.URL)
		}
	}
	h := harness(t, service)
	r := h.Run(typed.JSON(load), importTask)
	if string(r.Result) != `{"pages":3,"records":50,"done":true}` {
		t.Fatal(r, string(r.Result))
	}
	if keys := h.Bucket("records").Keys(); len(keys) != 50 || keys[49] != "record-00050" {
		t.Errorf("%d records: %v", len(keys), keys)
	}
	if value, _ := h.Bucket("records").Get("record-00050"); value != `{"id":"record-00050","title":"The 50. record"}` {
		t.Errorf("the last one is %s", value)
	}
	want := []sdktest.Progress{{Fraction: 0.4, Message: "page 1, 20 of 50 records"}, {Fraction: 0.8, Message: "page 2, 40 of 50 records"}, {Fraction: 1, Message: "page 3, 50 of 50 records"}}
	if fmt.Sprint(r.Progress) != fmt.Sprint(want) {
		t.Errorf("progress %v, want %v", r.Progress, want)
	}
}

// After whichever page the host is gone, no page is asked for twice, and the result is the same.
func TestLoadDies(t *testing.T) {
	t.Parallel()
	const pages = 4
	for die := 1; die <= pages; die++ {
		service := newCounted(api.New(api.Records(pages*10), 10))
		h := harness(t, service)
		task := importTask
		saved := 0
		h.Fault = func(function string) error {
			if saved == die {
				return sdk.ErrUnavailable
			}
			if function == "checkpoint_save" {
				saved++
			}
			return nil
		}
		r := h.Run(typed.JSON(load), task)
		if want := die < pages; (r.Outcome != sdktest.Complete) != want {
			t.Fatal(r)
		}
		h.Fault, task.Checkpoint = nil, r.Checkpoint
		if r := h.Run(typed.JSON(load), task); string(r.Result) != `{"pages":4,"records":40,"done":true}` {
			t.Errorf("after a death at page %d: %v %s", die, r, r.Result)
		}
		for _, cursor := range []string{"", "10", "20", "30"} {
			if asked := service.count(cursor); asked != 1 {
				t.Errorf("a death at page %d: cursor %q was asked for %d times", die, cursor, asked)
			}
		}
		if keys := h.Bucket("records").Keys(); len(keys) != 40 {
			t.Errorf("a death at page %d leaves %d records", die, len(keys))
		}
	}
}

// A page that was kept by half is kept again, and nothing is there twice.
func TestLoadHalfAPage(t *testing.T) {
	t.Parallel()
	h := harness(t, api.New(api.Records(30), 10))
	sets := 0
	h.Fault = func(function string) error {
		if function == "kv_set" {
			if sets++; sets == 15 {
				return sdk.ErrUnavailable
			}
		}
		return nil
	}
	r := h.Run(typed.JSON(load), importTask)
	if r.Outcome != sdktest.Failed || !strings.HasPrefix(r.Err.Error(), `keep record "record-00015": `) || string(r.Checkpoint) != `{"cursor":"10","pages":1,"records":10,"done":false}` {
		t.Fatal(r, string(r.Checkpoint))
	}
	again := importTask
	again.Checkpoint = r.Checkpoint
	r = h.Run(typed.JSON(load), again)
	if string(r.Result) != `{"pages":3,"records":30,"done":true}` || len(h.Bucket("records").Keys()) != 30 {
		t.Error(r, string(r.Result), h.Bucket("records").Keys())
	}
}

// A host that is asked to end gets its slot back after the page, and no attempt is counted.
func TestLoadHostEnds(t *testing.T) {
	t.Parallel()
	service := newCounted(api.New(api.Records(50), 10))
	h := harness(t, service)
	service.before = func(cursor string, _ int, _ *http.Request) {
		if cursor == "20" {
			h.Cancel()
		}
	}
	r := h.Run(typed.JSON(load), importTask)
	if r.Outcome != sdktest.Retry || string(r.Checkpoint) != `{"cursor":"30","pages":3,"records":30,"done":false}` {
		t.Fatal(r, string(r.Checkpoint))
	}
	again := importTask
	again.Checkpoint = r.Checkpoint
	if r = h.Run(typed.JSON(load), again); string(r.Result) != `{"pages":5,"records":50,"done":true}` {
		t.Error(r, string(r.Result))
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	for name, tt := range map[string]struct {
		service http.Handler
		input   string
		outcome sdktest.Outcome
		after   time.Duration
		want    string
	}{
		"NoURL":      {nil, `{}`, sdktest.Fatal, 0, `an import is {"url"`},
		"NoHost":     {nil, `{"url": "records"}`, sdktest.Fatal, 0, `an import is {"url"`},
		"NotFound":   {answer(404, ""), "", sdktest.Fatal, 0, "the service answered 404"},
		"TooMany":    {answer(429, ""), "", sdktest.Retry, 7 * time.Second, "the service answered 429"},
		"Down":       {answer(500, ""), "", sdktest.Failed, 0, "the service answered 500"},
		"NoPage":     {answer(200, "<html>"), "", sdktest.Fatal, 0, "read a page: "},
		"NoRecordID": {answer(200, `{"records": [{"title": "x"}]}`), "", sdktest.Fatal, 0, `a record without an id: "{\"title\": \"x\"}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := importTask
			if tt.input != "" {
				task.Input = []byte(tt.input)
			}
			r := harness(t, tt.service).Run(typed.JSON(load), task)
			if r.Outcome != tt.outcome || r.RetryAfter != tt.after || !strings.Contains(r.Err.Error(), tt.want) {
				t.Errorf("%v, want %v with %q", r, tt.outcome, tt.want)
			}
		})
	}
}

const (
	total, pageSize = 240, 20
	killedAt        = 100 // records: the cursor of the sixth page
	testPatience    = 2 * time.Minute
)

// TestPlugin runs the plugin as a handler of real hosts.
func TestPlugin(t *testing.T) {
	t.Parallel()
	plugin := exampletest.New(t).Build(t, ".")
	t.Run("Kill", func(t *testing.T) { testKill(t, plugin) })
	t.Run("Rate", func(t *testing.T) { testRate(t, plugin) })
}

// testKill kills a host in the middle of an import, as a crash would, and sees another one go on.
func testKill(t *testing.T, plugin *exampletest.Plugin) {
	t.Parallel()
	reached := make(chan struct{})
	service := newCounted(api.New(api.Records(total), pageSize))
	service.before = func(cursor string, asked int, r *http.Request) {
		if cursor == strconv.Itoa(killedAt) && asked == 1 {
			close(reached)
			<-r.Context().Done() // until the host is gone
		}
	}
	server := httptest.NewServer(service)
	defer server.Close()
	redis := queuetest.Start(t).URL()
	quern := plugin.Quern
	plugins := plugin.Install(t, "http://127.0.0.1:8080", server.URL, `rate: "5"`, `rate: "1000"`, `burst: "5"`, `burst: "1000"`)
	flags := []string{"--allow-networks", "127.0.0.0/8", "--lease", "1s", "--tenants", "acme"}
	client, err := queue.New(redis, queue.Config{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id, err := client.Queue("importer").Enqueue(t.Context(), fmt.Appendf(nil, `{"url": "%s/records"}`, server.URL), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}

	first := quern.Start(t, redis, plugins, flags...)
	select {
	case <-reached:
	case <-time.After(testPatience):
		t.Fatal("the import never came to its sixth page")
	}
	exampletest.Eventually(t, "the progress of the first five pages is shown", func() bool {
		task, err := client.Task(t.Context(), id)
		return err == nil && task.Message == "page 5, 100 of 240 records" && task.Progress > 0.4 && task.Progress < 0.42
	})
	first.Kill()
	quern.Start(t, redis, plugins, flags...)
	task, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if string(task.Result) != `{"pages":12,"records":240,"done":true}` || task.Crashes != 1 || task.Attempts != 1 {
		t.Errorf("result %s after %d crashes and %d attempts: %+v", task.Result, task.Crashes, task.Attempts, task.Failure())
	}
	for begin := 0; begin < total; begin += pageSize {
		cursor, want := strconv.Itoa(begin), 1
		if begin == 0 {
			cursor = ""
		}
		if begin == killedAt {
			want = 2
		}
		if asked := service.count(cursor); asked != want {
			t.Errorf("cursor %q was asked for %d times, want %d", cursor, asked, want)
		}
	}
	kept(t, quern, redis)
}

// kept looks into the store, as a person would: each record is there, once.
func kept(t *testing.T, quern *exampletest.Quern, redis string) {
	t.Helper()
	var keys []string
	list := quern.Output(t, "kv", "ls", "records", "--limit", "1000", "-o", "json", "--redis", redis, "--tenant", "acme")
	if err := json.Unmarshal(list, &keys); err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	want := api.Records(total)
	if len(keys) != len(want) {
		t.Fatalf("%d records are kept, want %d", len(keys), len(want))
	}
	for i, key := range keys {
		if key != want[i].ID {
			t.Errorf("record %d is %q, want %q", i+1, key, want[i].ID)
		}
	}
	value := quern.Output(t, "kv", "get", "records", keys[killedAt], "--redis", redis, "--tenant", "acme")
	if record, err := json.Marshal(want[killedAt]); err != nil || string(value) != string(record) {
		t.Errorf("kept %s, want %s (%v)", value, record, err)
	}
}

// testRate imports by several tasks at once, on two hosts: together they keep to the one rate.
func testRate(t *testing.T, plugin *exampletest.Plugin) {
	t.Parallel()
	const (
		tasks, pages = 3, 5
		every, burst = 50 * time.Millisecond, 3 // as the rate of 20 a second has it
	)
	service := newCounted(api.New(api.Records(pages), 1))
	server := httptest.NewServer(service)
	defer server.Close()
	redis := queuetest.Start(t).URL()
	plugins := plugin.Install(t, "http://127.0.0.1:8080", server.URL, `rate: "5"`, `rate: "20"`, `burst: "5"`, `burst: "3"`)
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 2 {
		plugin.Quern.Start(t, redis, plugins, "--allow-networks", "127.0.0.0/8")
	}
	importAll := func(tasks int) {
		var ids []string
		for range tasks {
			id, err := client.Queue("importer").Enqueue(t.Context(), fmt.Appendf(nil, `{"url": "%s"}`, server.URL), queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for _, id := range ids {
			if task, err := client.Wait(t.Context(), id); err != nil || task.Status != queue.Complete {
				t.Fatalf("%v: %+v", err, task)
			}
		}
	}
	importAll(1) // what a host takes to begin with is not waiting
	began := time.Now()
	importAll(tasks)
	service.mu.Lock()
	defer service.mu.Unlock()
	if took, least := service.last.Sub(began), (tasks*pages-burst)*every; took < least {
		t.Errorf("%d requests took %s, want at least %s", tasks*pages, took, least)
	}
}
