// Package peers compares what a task costs with what it costs elsewhere. It is a module of its own, so that
// nobody who uses Quern gets the peers with it.
package peers

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

const (
	rounds = 7                      // of which the median is taken
	span   = 100 * time.Millisecond // that each way is given in a round, at least
)

var processor = flag.Bool("processor", false, "measure what all threads take of the processors, on two cores of both,"+
	" which other work on the machine disturbs less")

// guest is a handler, once with the functions of Quern and once with those of Extism, and a task for it.
type guest struct {
	name          string
	quern, extism []byte
	input, output []byte
}

// task runs one task in one of the ways and looks whether its output is right.
type task func() error

// BenchmarkPeers prints a table of the time for a task, for guests in four languages, on one core and on two. All
// ways to run a guest have their turns, round by round.
func BenchmarkPeers(b *testing.B) {
	var rows []row
	for _, cores := range []int{1, 2} {
		b.Run(fmt.Sprintf("cores=%d", cores), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			for _, language := range runtimetest.Languages() {
				for _, build := range []func(*testing.B, runtimetest.Language) guest{empty, json} {
					g := build(b, language)
					b.Run(g.name, func(b *testing.B) {
						rows = append(rows, row{guest: g.name, cores: cores, times: compare(b, g, cores)})
					})
				}
			}
		})
	}
	if err := printTable(rows); err != nil {
		b.Fatal(err)
	}
}

func empty(b *testing.B, language runtimetest.Language) guest {
	binary := language.Empty(b) // which calls no function of the host
	return guest{name: string(language) + "/empty", quern: binary, extism: binary}
}

func json(b *testing.B, language runtimetest.Language) guest {
	return guest{
		name: string(language) + "/JSON", quern: language.JSON(b), extism: language.BuildHandler(b, forExtism(b, language)),
		input: runtimetest.JSONInput(), output: runtimetest.JSONOutput(),
	}
}

// forExtism is the source of the guest JSON with its functions for input and output exchanged.
func forExtism(b *testing.B, language runtimetest.Language) string {
	_, work, found := strings.Cut(language.HandlerSource(b, "json"), "// ---- the same for all hosts\n")
	if !found {
		b.Fatalf("the guest in %s does not say where the same for all hosts begins", language)
	}
	file := map[runtimetest.Language]string{
		runtimetest.C: "extism.c", runtimetest.Rust: "extism.rs", runtimetest.Go: "extism.go", runtimetest.AssemblyScript: "extism.ts",
	}[language]
	functions, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		b.Fatal(err)
	}
	return string(functions) + work
}

// compare measures a guest in all ways, and returns the times of a task in each.
func compare(b *testing.B, g guest, cores int) [][]time.Duration {
	runners := make([]runner, len(ways))
	for i, way := range ways {
		runners[i] = runner{tasks: way.start(b, g, cores), repeats: 1}
		runners[i].calibrate(b)
	}
	times := make([][]time.Duration, len(ways))
	for range rounds {
		for i := range runners {
			times[i] = append(times[i], runners[i].measure(b))
		}
	}
	b.ReportMetric(0, "ns/op") // of an iteration, which is all of this
	for i, way := range ways {
		_, median, _ := quartiles(times[i])
		b.ReportMetric(microseconds(median), strings.ReplaceAll(way.name, " ", "-")+"-µs")
	}
	return times
}

// runner runs tasks in one of the ways, on as many goroutines as there are cores.
type runner struct {
	tasks   []task
	repeats int // by each goroutine
}

// calibrate finds how many repeats take long enough to be measured.
func (r *runner) calibrate(b *testing.B) {
	r.measure(b) // the first task starts the plugin
	for ; r.measure(b)*time.Duration(r.repeats*len(r.tasks)) < span; r.repeats *= 2 {
	}
}

// measure returns the time for a task: on two cores, half of what one of them takes for it.
func (r *runner) measure(b *testing.B) time.Duration {
	runtime.GC() // what others left
	ended := make(chan error)
	began := clock(b)
	for _, task := range r.tasks {
		go func() {
			var err error
			for i := 0; i < r.repeats && err == nil; i++ {
				err = task()
			}
			ended <- err
		}()
	}
	var err error
	for range r.tasks {
		err = errors.Join(err, <-ended)
	}
	took := clock(b) - began
	if err != nil {
		b.Fatal(err)
	}
	return took / time.Duration(r.repeats*len(r.tasks))
}

// clock is the time since a point that is always the same.
func clock(b *testing.B) time.Duration {
	if !*processor {
		return time.Since(zero)
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

var zero = time.Now()

// row is one of the table.
type row struct {
	guest string
	cores int
	times [][]time.Duration // by the way
}

// printTable writes medians in microseconds with what lies between the quartiles.
func printTable(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nµs for a task\tcores\t")
	for _, way := range ways {
		fmt.Fprint(w, way.name, "\t\t")
	}
	for _, row := range rows {
		fmt.Fprintf(w, "\n%s\t%d\t", row.guest, row.cores)
		for _, times := range row.times {
			lower, median, upper := quartiles(times)
			fmt.Fprintf(w, "%.2f\t±%.2f\t", microseconds(median), microseconds(upper-lower)/2)
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// quartiles are the lower one, the median and the upper one.
func quartiles[T cmp.Ordered](values []T) (lower, median, upper T) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return sorted[n/4], sorted[n/2], sorted[n-1-n/4]
}
