package abi

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestDocument compares the tables of sdk/ABI.md with the code: names, parameters, where a function works, and errors.
func TestDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../sdk/ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if name := strings.TrimSpace(cells[min(1, len(cells)-1)]); len(cells) == 6 && strings.HasPrefix(name, "`") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[strings.Trim(name, "`")] = cells[2:5]
		}
	}
	for _, f := range Functions() {
		row := rows[f.Name]
		if row == nil {
			t.Errorf("the page has no %s", f.Name)
			continue
		}
		delete(rows, f.Name)
		if got, want := parameters(row[0]), types(f.Params); got != want {
			t.Errorf("the page has %s(%s), want %s", f.Name, got, want)
		}
		stage := ""
		switch g := setup(t, 1, Config{Stage: Initializing}); {
		case f.Name == "result_read" || f.Name == "result_size":
			stage = "slot"
		case g.call(f.Name, make([]uint64, len(f.Params))...) != errnoState:
			stage = "start"
		case setup(t, 1, Config{Stage: Warming}).call(f.Name, make([]uint64, len(f.Params))...) != errnoState:
			stage = "warm"
		}
		if row[2] != stage {
			t.Errorf("the page says that %s works in %q, want %q", f.Name, row[2], stage)
		}
	}
	for name := range rows {
		t.Errorf("the page has %s, which is not here", name)
	}
	for number, name := range names {
		if row := fmt.Sprintf("| −%d | %s |", -number, name); number < 0 && !strings.Contains(string(page), row) {
			t.Errorf("the page has no row %s", row)
		}
	}
}

// parameters turns what the page says of them into types: what has none of its own is an i32.
func parameters(text string) string {
	var list []string
	for field := range strings.SplitSeq(text, ",") {
		words := strings.Fields(field)
		if len(words) == 0 {
			continue
		}
		switch last := words[len(words)-1]; last {
		case "i64", "f64":
			list = append(list, last)
		default:
			list = append(list, "i32")
		}
	}
	return strings.Join(list, " ")
}

// exampleHTTP answers every request as the page's example says.
type exampleHTTP struct{}

func (exampleHTTP) Do(_ context.Context, r service.Request) (service.Response, error) {
	if r.Method != "GET" {
		return service.Response{}, service.ErrDenied
	}
	return service.Response{Status: 200, Headers: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("hi")}, nil
}

// examplesID is as long as the IDs are that the host makes.
const examplesID = "11e0d1a5-6a0e-4d7c-9a3f-0c2d8b1f5e"

// exampleEnqueuer answers an ID that is as long as those that the host makes.
type exampleEnqueuer struct{}

func (exampleEnqueuer) Enqueue(_ context.Context, child service.Child) (string, error) {
	return cmp.Or(child.ID, examplesID+"-1"), nil
}

// exampleSQL answers as the page's example says.
type exampleSQL struct{ service.SQL }

func (exampleSQL) Query(_ context.Context, database, statement string, parameters []service.SQLValue) ([]byte, error) {
	switch {
	case database != "shop" || statement != "SELECT $1::int4 AS n, $2 AS t":
		return nil, service.ErrDenied
	case len(parameters) == 0:
		return []byte("\xff\xff\xff\xff\x02\x00\x00\x00C\x05\x00\x00\x0042P02M\x18\x00\x00\x00there is no parameter $1"), nil
	case len(parameters) == 2 && string(parameters[0].Data) == "42" && parameters[1].Kind == service.SQLNull:
		return []byte("\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00" +
			"\x17\x00\x00\x00\x01\x00\x00\x00n\x19\x00\x00\x00\x01\x00\x00\x00t\x01\x02\x00\x00\x0042\x00\x00\x00\x00\x00"), nil
	}
	return nil, service.ErrInvalid
}

// TestExamples does what the page's examples in bytes do.
func TestExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../sdk/ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## Examples in bytes\n")
	if !found {
		t.Fatal("the page has no examples")
	}
	rdb, err := queue.Connect(queuetest.Mini(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	store := kv.New(rdb, "acme")
	g := setup(t, 1, Config{Task: Task{ID: examplesID, Attempt: 2}, Services: service.Services{
		KV: store.For([]kv.Grant{{Bucket: "thumbs", Write: true, Quota: 1 << 20}}, nil), HTTP: exampleHTTP{},
		Enqueue: exampleEnqueuer{}, SQL: exampleSQL{},
	}})
	called := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			called[g.example(strings.TrimSpace(line))] = true
		}
	}
	for _, name := range []string{"kv_get", "kv_set", "kv_swap", "kv_list", "kv_increment", "task_number", "enqueue", "http", "sql", "result_read"} {
		if !called[name] {
			t.Errorf("no example of %s", name)
		}
	}
}

var (
	exampleCall  = regexp.MustCompile(`^([a-z_]+)\(([-0-9, ]*)\) = ([A-Z]+|[0-9]+)$`)
	exampleBytes = regexp.MustCompile("^([0-9]+) (←|→) (?:`(.*)`|([0-9a-f ]+))$")
)

// example does one line of the page's examples, and answers which function it calls, if any.
func (g *guest) example(line string) string {
	g.t.Helper()
	if m := exampleBytes.FindStringSubmatch(line); m != nil {
		at, err := strconv.ParseUint(m[1], 10, 16)
		if err != nil {
			g.t.Fatalf("%s: %v", line, err)
		}
		text := m[3]
		if m[4] != "" {
			data, err := hex.DecodeString(strings.ReplaceAll(m[4], " ", ""))
			if err != nil {
				g.t.Fatalf("%s: %v", line, err)
			}
			text = string(data)
		}
		if m[2] == "←" {
			g.put(uint32(at), text)
		} else if got := string(g.get(uint32(at), uint32(len(text)))); got != text {
			g.t.Errorf("%s: there is %q", line, got)
		}
		return ""
	}
	m := exampleCall.FindStringSubmatch(line)
	if m == nil {
		g.t.Fatalf("%q is no example", line)
	}
	f, ok := g.functions[m[1]]
	if !ok {
		g.t.Fatalf("%s: there is no such function", line)
	}
	var arguments []uint64
	for field := range strings.SplitSeq(m[2], ", ") {
		if field == "" {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || len(arguments) == len(f.Params) {
			g.t.Fatalf("%s: argument %q: %v", line, field, err)
		}
		if f.Params[len(arguments)] == i32 {
			n &= math.MaxUint32
		}
		arguments = append(arguments, uint64(n))
	}
	got := g.call(m[1], arguments...)
	if text := strconv.Itoa(int(got)); got < 0 && names[got] != m[3] || got >= 0 && text != m[3] {
		g.t.Errorf("%s: it answers %d %s", line, got, names[got])
	}
	return m[1]
}
