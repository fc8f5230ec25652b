package peers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	quern "github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// smallOrder is the task: all languages and all peers parse it, add up what its lines cost and weigh, and write it.
const (
	smallOrder = `{"id":"9f4e1c52","customer":{"name":"Zoë","email":"zoe@example.org"},"lines":[{"sku":"SKU-1","title":"Widget",` +
		`"quantity":2,"price":990,"weights":[1,2,3]}],"paid":true,"note":null,"total":0,"weight":0}`
	smallOrderOutput = `{"id":"9f4e1c52","customer":{"name":"Zoë","email":"zoe@example.org"},"lines":[{"sku":"SKU-1","title":"Widget",` +
		`"quantity":2,"price":990,"weights":[1,2,3]}],"paid":true,"note":null,"total":1980,"weight":12}`
)

// language is one in which users write handlers.
type language struct {
	name        string
	empty, json func(b *testing.B) []byte
}

func languages() []language {
	interpreted := func(language, source string) func(b *testing.B) []byte {
		return func(b *testing.B) []byte { return runtimetest.Interpreted(b, language, source) }
	}
	return []language{
		{"C", func(b *testing.B) []byte { return runtimetest.C.Empty(b) }, func(b *testing.B) []byte { return runtimetest.C.JSON(b) }},
		{"Go", func(b *testing.B) []byte { return runtimetest.Go.Empty(b) }, func(b *testing.B) []byte { return runtimetest.Go.JSON(b) }},
		{"JavaScript", interpreted("javascript", "export default function () {}"), interpreted("javascript", `
			export default function (task) {
				const order = task.json();
				order.total = order.weight = 0;
				for (const line of order.lines) {
					order.total += line.quantity * line.price;
					for (const weight of line.weights) order.weight += line.quantity * weight;
				}
				return order;
			}`)},
		{"Python", interpreted("python", "def handle(task): pass"), interpreted("python", `
def handle(task):
    order = task.json()
    order["total"] = sum(line["quantity"] * line["price"] for line in order["lines"])
    order["weight"] = sum(line["quantity"] * weight for line in order["lines"] for weight in line["weights"])
    return order
`)},
	}
}

// BenchmarkLanguages prints what a handler costs in each language, as a table in Markdown.
func BenchmarkLanguages(b *testing.B) {
	folder := outFolder(b)
	rows := startLanguages(b, filepath.Join(b.TempDir(), "compiled"))
	measureTasks(b, rows)
	report(b, folder, "languages.md", languageTable(rows))
	b.ReportMetric(0, "ns/op") // of an iteration, which is all of this
}

// languageRow is what a handler in a language costs.
type languageRow struct {
	language
	size           int64
	compile, start time.Duration
	snapshot       int64
	ways           []runner // empty cold and warm, JSON cold and warm
	times          [4][]time.Duration
}

// startLanguages compiles the handlers, and starts what will be measured.
func startLanguages(b *testing.B, cache string) []*languageRow {
	var rows []*languageRow
	for _, l := range languages() {
		row := &languageRow{language: l}
		row.starts(b, cache)
		for _, g := range []guest{
			{name: l.name + "/empty", quern: l.empty(b)},
			{name: l.name + "/JSON", quern: l.json(b), input: []byte(smallOrder), output: []byte(smallOrderOutput)},
		} {
			for _, warm := range [][]byte{nil, append([]byte{}, g.input...)} {
				row.ways = append(row.ways, runner{tasks: startQuern(b, g, 1, warm, cache), repeats: 1})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// starts measures what comes before a task; the cache has nothing of the language.
func (row *languageRow) starts(b *testing.B, cache string) {
	binary := row.json(b)
	row.size = int64(len(binary))
	engine, err := quern.New(b.Context(), quern.Config{CacheDir: cache})
	if err != nil {
		b.Fatal(err)
	}
	closing(b, engine)
	begun := time.Now()
	module, err := engine.Load(b.Context(), binary)
	if err != nil {
		b.Fatal(err)
	}
	closing(b, module)
	row.compile = time.Since(begun)
	var starts []time.Duration
	for range rounds {
		pool := module.Bind(quern.Profile{Tenant: "tenant"})
		begun = time.Now()
		outcome := pool.Run(b.Context(), quern.Call{TaskID: "1", Queue: "queue", Plugin: "plugin", Input: []byte(smallOrder)})
		starts = append(starts, time.Since(begun))
		if outcome.Kind != quern.Complete {
			b.Fatalf("%s: %+v", row.name, outcome)
		}
		row.snapshot = engine.Holdings().Snapshots
		pool.Close()
	}
	_, row.start, _ = quartiles(starts)
}

// measureTasks measures all languages in turns, round by round.
func measureTasks(b *testing.B, rows []*languageRow) {
	for _, row := range rows {
		for i := range row.ways {
			row.ways[i].calibrate(b)
		}
	}
	for range rounds {
		for _, row := range rows {
			for i := range row.ways {
				row.times[i] = append(row.times[i], row.ways[i].measure(b))
			}
		}
	}
}

// languageTable writes medians, each with half of what lies between the quartiles.
func languageTable(rows []*languageRow) string {
	var text strings.Builder
	text.WriteString("| | size | compile | start | snapshot | empty, cold | warm | JSON, cold | warm |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |", row.name, bytesOf(row.size), milliseconds(row.compile), milliseconds(row.start), bytesOf(row.snapshot))
		for _, times := range row.times {
			lower, median, upper := quartiles(times)
			fmt.Fprintf(&text, " %.1f ± %.1f µs |", microseconds(median), microseconds(upper-lower)/2)
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

func bytesOf(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<9)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func milliseconds(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
