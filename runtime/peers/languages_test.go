package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// queueRounds is how often each queue is worked off, in turns; tablePath names the file for the table beside stdout.
const (
	queueRounds = 5
	tablePath   = "QUERN_BENCH_TABLE"
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

// BenchmarkLanguages prints what a handler costs in each language, and how many tasks a second go through a host and through the
// queues of others, as a table in Markdown.
func BenchmarkLanguages(b *testing.B) {
	cache := filepath.Join(b.TempDir(), "compiled")
	rows := startLanguages(b, cache)
	measureTasks(b, rows)
	systems := make([]system, 0, len(rows))
	h := installHosts(b, rows, cache)
	for _, row := range rows {
		systems = append(systems, system{row.name, 20_000, h.run(strings.ToLower(row.name))})
	}
	peers := peerSystems(b)
	measureSystems(b, systems[:len(rows)], 1) // compiles what the hosts load
	rates := measureSystems(b, append(systems, peers...), queueRounds)
	text := languageTable(rows, peers, rates)
	fmt.Println("\n" + text)
	if path := os.Getenv(tablePath); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
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

// installHosts builds quern, and makes a folder of the JSON handlers, which are warmed.
func installHosts(b *testing.B, rows []*languageRow, cache string) hosts {
	h := hosts{filepath.Join(b.TempDir(), "quern"), b.TempDir(), cache}
	if said, err := exec.Command("go", "build", "-C", "../..", "-o", h.program, "./cmd/quern").CombinedOutput(); err != nil {
		b.Fatalf("build quern: %v\n%s", err, said)
	}
	for _, row := range rows {
		name := strings.ToLower(row.name)
		for file, content := range map[string][]byte{
			name + ".wasm": row.json(b), name + ".json": []byte(smallOrder), name + ".yaml": []byte("warm: {input: " + name + ".json}\n"),
		} {
			if err := os.WriteFile(filepath.Join(h.plugins, file), content, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	return h
}

// languageTable writes medians, each with half of what lies between the quartiles.
func languageTable(rows []*languageRow, peers []system, rates [][]float64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "| | size | compile | start | snapshot | empty, cold | warm | JSON, cold | warm | JSON tasks/s, %d slots |\n|---|---|---|---|---|---|---|---|---|---|\n", slots)
	medians := map[string]float64{}
	rate := func(name string, rates []float64) string {
		lower, median, upper := quartiles(rates)
		medians[name] = median
		return fmt.Sprintf("%.0f ± %.0f", median, (upper-lower)/2)
	}
	for i, row := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |", row.name, bytesOf(row.size), milliseconds(row.compile), milliseconds(row.start), bytesOf(row.snapshot))
		for _, times := range row.times {
			lower, median, upper := quartiles(times)
			fmt.Fprintf(&text, " %.1f ± %.1f µs |", microseconds(median), microseconds(upper-lower)/2)
		}
		fmt.Fprintf(&text, " %s |\n", rate(row.name, rates[i]))
	}
	for i, peer := range peers {
		fmt.Fprintf(&text, "| %s |%s %s |\n", peer.name, strings.Repeat(" |", 8), rate(peer.name, rates[len(rows)+i]))
	}
	fmt.Fprintln(&text)
	for _, pair := range [][2]string{{"Python", "Celery"}, {"Python", "RQ"}, {"JavaScript", "BullMQ sandboxed"}, {"JavaScript", "BullMQ in process"}} {
		at := slices.IndexFunc(peers, func(s system) bool { return strings.HasPrefix(s.name, pair[1]) })
		fmt.Fprintf(&text, "%s: %.1f times the rate of %s.\n", pair[0], medians[pair[0]]/medians[peers[at].name], pair[1])
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
