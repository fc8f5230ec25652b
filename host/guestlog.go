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
	// maxTrace is the maximum length, in bytes, of a trace in the host's log. Lines that a longer trace has after these
	// bytes are logged one by one, until another trace begins.
	maxTrace = 16 << 10
	// traceQuiet is how long a trace waits for its next line before it is logged. The end of the handler can be hours
	// away.
	traceQuiet = time.Second
	// maxObjects is how many occurrences of `{"` in a line are tried as the beginning of its JSON object.
	maxObjects = 4
	// traceback is the first line of an exception in Python; the last line names the exception.
	traceback = "Traceback (most recent call last):"
	// fatal begins the line in which Go's runtime reports a fatal error. announced begins lines that can precede that
	// line.
	fatal, announced = "fatal error: ", "runtime: "
)

// chain has the lines that Python writes between two chained exceptions, in order. Each element lists the possible
// texts of one line.
var chain = [...][]string{
	{""},
	{
		"During handling of the above exception, another exception occurred:",
		"The above exception was the direct cause of the following exception:",
	},
	{""},
	{traceback},
}

// guestLog writes the lines of one task to the host's log, each with its level and fields. A panic in Go becomes one
// record, and so does an exception in Python with the exceptions chained to it. Such a record is written when a line
// follows that does not belong to it, or when no line follows for traceQuiet.
type guestLog struct {
	logger hclog.Logger
	task   *task

	mu    sync.Mutex // guards the fields below
	trace []string   // the lines of a panic or exception so far
	size  int        // bytes in trace
	// named is 0 until the line that names a Python exception, and then counts the lines of trace from that line on. It
	// is 0 again when the traceback of a chained exception begins.
	named int
	quiet *time.Timer // flushes trace after traceQuiet; nil before the first trace
}

// add logs a line, or holds it back while it belongs to an unfinished trace.
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
	case text == traceback || hasPrefix(text, "panic: ", fatal) || goroutine.MatchString(text) ||
		text == line && hasPrefix(text, announced):
		g.end()
		g.hold(text)
	default:
		g.end()
		g.write(hclog.Trace+hclog.Level(level), text)
	}
}

var (
	// goroutine matches the first line of a goroutine's trace.
	goroutine = regexp.MustCompile(`^goroutine \d+ (\w+=\S+ )*\[`)
	// frame matches a function with its arguments in a goroutine's trace.
	frame = regexp.MustCompile(`^[^\s(]+(\(\*?[^\s)]*\)[^\s(]*)?\(.*\)$`)
)

// isTraceOfGo reports whether a line can belong to a panic in Go, after the first line of the panic. If the program
// recovers, other lines can follow.
func isTraceOfGo(text string) bool {
	return text == "" || hasPrefix(text, "\t", "created by ", "[signal ", "exit status ", "...", "runtime stack:") ||
		goroutine.MatchString(text) || frame.MatchString(text)
}

// continues reports whether a line belongs to the Go trace so far. Until the trace has its headline, a line with a
// level does not.
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

// headline returns the index of the line in the trace that names the error, or -1 if the trace does not have that line
// yet.
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

// cutFields cuts a JSON object off the end of a line and returns its fields. An object that contains unprintable
// characters, escaped, stays in the line.
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

// parseFields parses a JSON object. Numbers keep their text. It returns nil if cutFields must leave the object in the
// line.
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
