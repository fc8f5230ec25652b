package runtime

import (
	"regexp"
	"slices"
	"strings"
)

// goTrace reads the traces that Go's runtime writes to stderr. It finds the place of a panic or fatal error. It also
// finds what to leave out of the log of a fatal error: Go writes all goroutines of its runtime, and dumps of stacks.
//
//	fatal error: out of memory
//
//	goroutine 1 gp=0x2021c0 m=0 mp=0x1443e0 [running]:
//	main.eat(...)
//		try/main.go:22 +0x4a fp=0x23adb8
type goTrace struct {
	fatal   bool   // a fatal error was written
	crashed bool   // a fatal error or a panic was written
	part    goPart // of the trace
	read    bool   // the first goroutine was read: it is the one that crashed
	whole   bool   // frames ends at the SDK, or is as long as it may be
	name    string // the function whose place is on the next line; "" if that is of no interest
	frames  []string
	grew    bool // the runtime failed to let a stack grow
}

type goPart int

const (
	goOther   goPart = iota // the log goes on
	goCrashed               // the goroutine that crashed
	goOmitted               // the runtime's own stack, or another goroutine
)

// omits takes the next line of stderr, and reports whether the log leaves it out.
func (g *goTrace) omits(line string) bool {
	switch {
	case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
		*g = goTrace{crashed: true, fatal: line[0] == 'f'}
	case !g.crashed:
	case line == "":
		omitted := g.part == goOmitted
		g.part = goOther
		return omitted
	case line == "runtime stack:" && g.fatal:
		g.part = goOmitted
	case strings.HasPrefix(line, "goroutine ") && strings.HasSuffix(line, "]:"):
		if g.part = goCrashed; g.read {
			g.part = goOmitted
		}
		g.read, g.name = true, ""
		return g.fatal && g.part == goOmitted
	case g.part == goCrashed:
		return g.frame(line) && g.fatal
	}
	if g.part == goOmitted && strings.HasPrefix(line, "runtime.newstack(") {
		g.grew = true
	}
	return g.fatal && g.part == goOmitted
}

// frame takes a line of the goroutine that crashed: a function, or its place. It reports whether the line is of no
// interest.
func (g *goTrace) frame(line string) (omit bool) {
	if place, ok := strings.CutPrefix(line, "\t"); ok {
		name := g.name
		if g.name = ""; name == "" {
			return true
		}
		place, _, _ = strings.Cut(place[strings.LastIndexByte(place, '/')+1:], " ")
		frame := name[strings.LastIndexByte(name, '/')+1:] + " (" + place + ")"
		if g.last() == frame {
			return true // recursion
		}
		g.frames = append(g.frames, frame)
		return false
	}
	name := line
	if end := strings.LastIndexByte(line, '('); end > 0 {
		name = line[:end]
	}
	name = strings.TrimPrefix(name, "created by ")
	sdk := isSDK(name)
	g.whole = g.whole || sdk && len(g.frames) > 0 || len(g.frames) == maxFrames
	if g.whole || sdk || name == "panic" || isRuntime(name) || strings.HasPrefix(line, "created by ") {
		g.name = ""
		return true
	}
	g.name = name
	return strings.HasPrefix(g.last(), name[strings.LastIndexByte(name, '/')+1:]+" (")
}

// last returns the last frame, "" if there is none.
func (g *goTrace) last() string {
	if len(g.frames) == 0 {
		return ""
	}
	return g.frames[len(g.frames)-1]
}

// isRuntime reports whether a function is of Go's runtime.
func isRuntime(name string) bool {
	return strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "internal/runtime/") || name == "wasm_pc_f_loop"
}

// isSDK reports whether a function is of the SDK for Go, which calls the handler. In the names of a module, Go's linker
// has written _ for what is no letter, digit or dot.
func isSDK(name string) bool {
	return strings.HasPrefix(name, "github.com/quern-project/quern/sdk.") ||
		strings.HasPrefix(name, "github.com_quern_project_quern_sdk.")
}

// handlerFrames returns the frames of a handler in Go: those that the SDK for Go has called, or Go's scheduler, which
// resumes a goroutine without its callers. It returns nil if neither is among the callers. It leaves out frames of the
// standard library that a function of the user has called.
func handlerFrames(frames []string) (own []string) {
	for len(frames) > 0 && isSDK(frames[0]) { // a function that the handler has called
		frames = frames[1:]
	}
	end := slices.IndexFunc(frames, func(name string) bool { return isSDK(name) || name == goScheduler })
	frames = frames[:max(0, end)]
	last := len(frames) - 1
	for last >= 0 && goLibrary.MatchString(frames[last]) {
		last--
	}
	for i, name := range frames {
		if i > last || !goLibrary.MatchString(name) {
			own = append(own, goMethod.ReplaceAllString(name, ".(*$1)."))
		}
	}
	return own
}

// goScheduler is the function of Go's runtime that runs goroutines in an exported function.
const goScheduler = "wasm_pc_f_loop_export"

var (
	// goLibrary matches functions of the standard library. Its packages have no dot in their path.
	goLibrary = regexp.MustCompile(`^((bufio|bytes|cmp|context|embed|errors|expvar|flag|fmt|iter|maps|plugin|reflect|` +
		`slices|sort|strconv|strings|structs|syscall|unique|unsafe|weak)\.|` +
		`(crypto|encoding|hash|html|image|io|log|math|mime|net|os|path|regexp|runtime|sync|testing|time|unicode)[._/]|` +
		`(archive|compress|container|database|debug|go|index|internal|text|vendor)[_/])`)
	// goMethod matches a receiver that is a pointer: Go's linker writes (*T) as __T_.
	goMethod = regexp.MustCompile(`\.__(\w+?)_\.`)
)
