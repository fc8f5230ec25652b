package peers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	slots     = 32     // of a host, and of what runs tasks side by side in one process
	producers = 8      // that enqueue side by side
	bulk      = 10_000 // tasks of one call

	queueRounds = 5
	// patience bounds each wait for a queue.
	patience = 5 * time.Minute
	// lookInterval is how often a queue is asked how many tasks are complete.
	lookInterval = 200 * time.Millisecond
)

// workload is what each task of a queue does. All languages and all peers do the same.
type workload struct{ name, parameters, output string }

var (
	nothing  = workload{name: "empty", parameters: strings.Repeat("quern ", 17)[:100]}
	ordering = workload{name: "order", parameters: smallOrder, output: smallOrderOutput}
)

// column is what is measured of a system.
type column int

const (
	drainEmpty  column = iota // tasks a second
	drainOrders               // the same
	enqueueOne                // tasks a second, by one producer
	enqueueEight
	enqueueBulk // by one producer, many in each call
	idle        // milliseconds from the call that enqueues to the task's start, of each of many tasks
	columns
)

// system is a queue with its workers. Each measurement has a server of its own; nil is what is not measured.
type system struct {
	name    string
	measure [columns]func(b *testing.B) []float64
}

// BenchmarkQueues prints how fast tasks go through a host and through the queues of others, as a table in Markdown, and draws it.
func BenchmarkQueues(b *testing.B) {
	folder := outFolder(b)
	systems := slices.Concat(quernSystems(b), goSystems(b), scriptSystems(b))
	results := make([][columns][][]float64, len(systems))
	for range queueRounds {
		for c := range columns {
			for i, s := range systems {
				if s.measure[c] != nil {
					results[i][c] = append(results[i][c], s.measure[c](b))
				}
			}
		}
	}
	q := queueResults{systems, results}
	report(b, folder, "queues.md", q.table())
	write(b, folder, "queues.svg", q.picture())
	b.ReportMetric(0, "ns/op") // of an iteration, which is all of this
}

// outFolder makes the folder that QUERN_BENCH_OUT names, before anything is measured. It is "" if there is none.
func outFolder(b *testing.B) (folder string) {
	b.Helper()
	if folder = os.Getenv("QUERN_BENCH_OUT"); folder != "" {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			b.Fatalf("QUERN_BENCH_OUT: %v", err)
		}
	}
	return folder
}

// report prints a table, and writes it.
func report(b *testing.B, folder, file, table string) {
	b.Helper()
	fmt.Println("\n" + table)
	write(b, folder, file, table)
}

// write writes a file of outFolder, if there is one.
func write(b *testing.B, folder, file, text string) {
	b.Helper()
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// rate is how many tasks a second were finished, in seconds, without the first tenth, in which workers start.
func rate(finished []float64) []float64 {
	slices.Sort(finished)
	first, last := len(finished)/10, len(finished)-1
	return []float64{float64(last-first) / (finished[last] - finished[first])}
}

// produce has producers side by side call enqueue until it has enqueued the tasks, and returns how many a second that were.
func produce(b *testing.B, producers, together, tasks int, enqueue func(tasks int) error) []float64 {
	b.Helper()
	var next atomic.Int64
	var group errgroup.Group
	begun := time.Now()
	for range producers {
		group.Go(func() error {
			for int(next.Add(int64(together))) <= tasks {
				if err := enqueue(together); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return []float64{float64(tasks) / time.Since(begun).Seconds()}
}

// milli is a duration in milliseconds.
func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// queueResults are what each system showed, by column and round.
type queueResults struct {
	systems []system
	results [][columns][][]float64
}

// at is a system's figure of each round, for waits their percentile.
func (q queueResults) at(system int, c column, percentile int) (rounds []float64) {
	for _, values := range q.results[system][c] {
		values = slices.Sorted(slices.Values(values))
		rounds = append(rounds, values[(len(values)-1)*percentile/100])
	}
	return rounds
}

// table has medians of the rounds, each with half of what lies between the quartiles.
func (q queueResults) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "| | empty, tasks/s | JSON, tasks/s | enqueue, 1 producer | %d producers | in bulk | idle p50, ms | p99, ms |\n"+
		"|---|---|---|---|---|---|---|---|\n", producers)
	for i, s := range q.systems {
		fmt.Fprintf(&text, "| %s |", s.name)
		for c := range idle {
			fmt.Fprintf(&text, " %s |", spread(q.at(i, c, 50), 0))
		}
		fmt.Fprintf(&text, " %s | %s |\n", spread(q.at(i, idle, 50), 2), spread(q.at(i, idle, 99), 2))
	}
	text.WriteString("\nRatios are medians of the rounds', from the lowest to the highest one.\n\n")
	for _, r := range []struct {
		name string
		a    string
		c    column
		b    string
		to   column
	}{
		{"empty", "Quern, C", drainEmpty, bestAsynq, drainEmpty},
		{"empty", "Quern, C", drainEmpty, "BullMQ in process", drainEmpty},
		{"empty", "Quern, C", drainEmpty, "BullMQ sandboxed", drainEmpty},
		{"empty", "Quern, C", drainEmpty, "River", drainEmpty},
		{"empty", "Quern, C", drainEmpty, "Blueque", drainEmpty},
		{"JSON", "Quern, Go", drainOrders, bestAsynq, drainOrders},
		{"JSON", "Quern, JavaScript", drainOrders, "BullMQ in process", drainOrders},
		{"JSON", "Quern, JavaScript", drainOrders, "BullMQ sandboxed", drainOrders},
		{"JSON", "Quern, Python", drainOrders, "Celery", drainOrders},
		{"JSON", "Quern, Python", drainOrders, "RQ", drainOrders},
		{"enqueue, 1 producer", "Quern, C", enqueueOne, "Asynq", enqueueOne},
		{"enqueue, 8 producers", "Quern, C", enqueueEight, "Asynq", enqueueEight},
		{"enqueue in bulk, to 8 producers", "Quern, C", enqueueBulk, "Asynq", enqueueEight},
	} {
		if q.find(r.b) < 0 { // it is left out
			continue
		}
		of, to := q.at(q.find(r.a), r.c, 50), q.at(q.find(r.b), r.to, 50)
		ratios := make([]float64, len(of))
		for i := range of {
			ratios[i] = of[i] / to[i]
		}
		_, median, _ := quartiles(ratios)
		fmt.Fprintf(&text, "- %s: %s has %.2f times the rate of %s (%.2f to %.2f).\n", r.name, r.a, median, r.b, slices.Min(ratios), slices.Max(ratios))
	}
	return text.String()
}

// find is the first system whose name begins so.
func (q queueResults) find(name string) int {
	return slices.IndexFunc(q.systems, func(s system) bool { return strings.HasPrefix(s.name, name) })
}

// spread writes the median with half of what lies between the quartiles.
func spread(values []float64, digits int) string {
	if len(values) == 0 {
		return "–"
	}
	lower, median, upper := quartiles(values)
	return fmt.Sprintf("%.*f ± %.*f", digits, median, digits, (upper-lower)/2)
}

// picture draws how fast each system works off its queue.
func (q queueResults) picture() string {
	type bar struct {
		name string
		rate float64
	}
	const left, width, height, gap = 230, 330, 18, 6
	var text strings.Builder
	y := 0
	for _, c := range []struct {
		column
		title string
	}{{drainEmpty, "Tasks that do nothing, a second"}, {drainOrders, "Tasks that parse, reckon and write JSON, a second"}} {
		var bars []bar
		for i, s := range q.systems {
			if s.measure[c.column] != nil {
				_, median, _ := quartiles(q.at(i, c.column, 50))
				bars = append(bars, bar{s.name, median})
			}
		}
		slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(b.rate, a.rate) })
		y += 2 * height
		fmt.Fprintf(&text, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y, c.title)
		y += gap
		for _, bar := range bars {
			color := "#9aa5b1"
			if strings.HasPrefix(bar.name, "Quern") {
				color = "#c2571a"
			}
			long := bar.rate / bars[0].rate * width
			fmt.Fprintf(&text, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				left-8, y+height-5, bar.name, left, y, long, height, color, left+long+6, y+height-5, thousands(bar.rate))
			y += height + gap
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 %d" font-family="sans-serif" font-size="13">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n%s</svg>\n", y+height, &text)
}

// thousands writes a number with two figures, with a comma before its last three ones.
func thousands(n float64) string {
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	whole := strconv.Itoa(int(math.Round(n/unit) * unit))
	if len(whole) > 3 {
		return whole[:len(whole)-3] + "," + whole[len(whole)-3:]
	}
	return whole
}

// check tells whether the tasks are those that were enqueued, by their number and the output of one.
func (w workload) check(finished, tasks int, output string) error {
	if finished != tasks || output != w.output {
		return errors.New(strconv.Itoa(finished) + " of " + strconv.Itoa(tasks) + " tasks, output " + strconv.Quote(output) + ", want " + strconv.Quote(w.output))
	}
	return nil
}
