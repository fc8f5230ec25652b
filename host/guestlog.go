package host

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
)

const (
	// maxTrace bounds the trace of a panic in the host's log, in bytes. What follows are lines of their own.
	maxTrace = 16 << 10
	// traceQuiet is how long a trace waits for its next line: the handler may run for hours.
	traceQuiet = time.Second
	// maxObjects is at how many places of a line its fields are looked for.
	maxObjects = 4
	// traceback begins an exception in Python; the line that names it comes last.
	traceback = "Traceback (most recent call last):"
	// fatal begins the report of Go's runtime that it ends, announced the lines that may come before.
	fatal, announced = "fatal error: ", "runtime: "
)

// chain are the lines between an exception in Python and one that followed from it.
var chain = [...][]string{
	{""},
	{"During handling of the above exception, another exception occurred:", "The above exception was the direct cause of the following exception:"},
	{""},
	{traceback},
}

// guestLog writes the lines of one task to the host's log, each with its level and fields. The lines of a panic in Go
// or an exception in Python, with those from which it followed, become one record, as soon as another line comes, or
// none for a while.
type guestLog struct {
	logger hclog.Logger
	task   *task

	mu    sync.Mutex // guards the fields below
	trace []string   // the lines of a panic or exception so far
	size  int        // of trace, in bytes
	// named counts the lines of trace from the one that names an exception in Python, 0 before that.
	named int
	quiet *time.Timer // flushes the trace; nil before the first one
}

// add logs a line, unless it belongs to a trace, which ends later.
func (g *guestLog) add(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	level, text := abi.CutLevel(line)
	if g.named > 0 && !slices.Contains(chain[g.named-1], text) {
		g.end()
	}
	python := len(g.trace) > 0 && g.trace[0] == traceback
	switch {
	case python:
		if g.named > 0 || !strings.HasPrefix(text, " ") {
			g.named = (g.named + 1) % (len(chain) + 1)
		}
		g.hold(text)
	case len(g.trace) > 0 && g.continues(line, text):
		g.hold(text)
	case text == traceback || hasPrefix(text, "panic: ", fatal) || goroutine.MatchString(text) || text == line && hasPrefix(text, announced):
		g.end()
		g.hold(text)
	default:
		g.end()
		g.write(hclog.Trace+hclog.Level(level), text)
	}
}

var (
	// goroutine begins the trace of one.
	goroutine = regexp.MustCompile(`^goroutine \d+ (\w+=\S+ )*\[`)
	// frame is a function in it, with its arguments.
	frame = regexp.MustCompile(`^[^\s(]+(\(\*?[^\s)]*\)[^\s(]*)?\(.*\)$`)
)

// isTraceOfGo reports whether a line may follow the first one of a panic. A program may recover, and log other lines
// then.
func isTraceOfGo(text string) bool {
	return text == "" || hasPrefix(text, "\t", "created by ", "[signal ", "exit status ", "...", "runtime stack:") || goroutine.MatchString(text) || frame.MatchString(text)
}

// continues reports whether a line belongs to the trace so far, of Go: before its headline only lines without a level do.
func (g *guestLog) continues(line, text string) bool {
	if g.headline() < 0 {
		return text == line && (isTraceOfGo(text) || hasPrefix(text, fatal, announced))
	}
	return isTraceOfGo(text)
}

func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

func (g *guestLog) hold(text string) {
	if g.quiet == nil {
		g.quiet = time.AfterFunc(traceQuiet, g.flush)
	} else {
		g.quiet.Reset(traceQuiet)
	}
	g.trace = append(g.trace, text)
	if g.size += len(text); g.size > maxTrace {
		g.end()
	}
}

// flush logs the trace that has begun, if there is one.
func (g *guestLog) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
}

func (g *guestLog) end() {
	if len(g.trace) == 0 {
		return
	}
	g.quiet.Stop()
	if at := g.headline(); at >= 0 {
		text := g.trace[at]
		g.write(hclog.Error, text, traceFields(strings.Join(slices.Delete(g.trace, at, at+1), "\n"))...)
	} else {
		for _, text := range g.trace {
			g.write(hclog.Info, text)
		}
	}
	g.trace, g.size, g.named = nil, 0, 0
}

// headline finds the line of the trace that names the error, -1 if there is none yet.
func (g *guestLog) headline() int {
	switch first := g.trace[0]; {
	case first == traceback:
		return len(g.trace) - max(g.named, 1)
	case hasPrefix(first, announced):
		return slices.IndexFunc(g.trace, func(text string) bool { return hasPrefix(text, fatal) })
	}
	return 0
}

func (g *guestLog) write(level hclog.Level, text string, more ...any) {
	if level < g.logger.GetLevel() {
		return
	}
	text, object := cutFields(text)
	if object != nil {
		more = append(more, "fields", object)
	}
	t := g.task
	g.logger.Log(level, "plugin says", append(t.logged("line", text), more...)...)
}

// cutFields cuts a JSON object off the end of a line. It leaves one there that escapes characters which cannot be
// printed.
func cutFields(line string) (text string, fields map[string]any) {
	if !strings.HasSuffix(line, "}") {
		return line, nil
	}
	at := 0
	for range maxObjects {
		next := strings.Index(line[at:], `{"`)
		if next < 0 {
			break
		}
		at += next
		if before := line[:at]; before == "" || strings.HasSuffix(before, " ") {
			if fields := parseFields(line[at:]); fields != nil {
				return strings.TrimSuffix(before, " "), fields
			}
		}
		at++
	}
	return line, nil
}

// parseFields reads an object, and decodes numbers as they are written.
func parseFields(object string) (fields map[string]any) {
	if !json.Valid([]byte(object)) {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil || len(fields) == 0 {
		return nil
	}
	if strings.Contains(object, `\u`) {
		if decoded, err := json.Marshal(fields); err != nil || redact.Escape(decoded) != string(decoded) {
			return nil
		}
	}
	return fields
}
