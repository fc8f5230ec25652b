package conformance_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"
)

// table is behaviors.yaml.
type table struct {
	// Features are what a language's guest may lack, and what that is.
	Features map[string]string
	// Languages say, by their folders, which features they lack, and why; and which engine of build/engines runs them, if one does.
	Languages map[string]struct {
		Lacks  map[string]string
		Engine string
	}
	// Calls are what guests can do, by their verbs.
	Calls map[string]struct {
		Words, About string
		Uses         []string // functions of quern_v1
	}
	// Elsewhere are errors that no behavior shows.
	Elsewhere map[string]string
	Behaviors []behavior
}

// behavior is a task and what becomes of it.
type behavior struct {
	Name  string
	About string
	// Needs are the features that the guest must have for it.
	Needs []string
	// Plugin is the variant that has the task; "" for kit.
	Plugin string
	// Input is what the task is given, as many times as Times says if it does. Pad makes it as long as that with a last line
	// that is a comment.
	Input      string
	Times, Pad int
	Task       struct {
		Key, Parent, Traceparent string
		Headers                  map[string]string
		Attempts, Depth          int
		Deadline                 time.Duration // from now
		After                    [][2]string   // tasks that it waits for until they have ended: ID and input of each
	}
	// Again runs the task a second time, and what becomes of that is the same. Differs says that what {hex} stands for in the
	// result is another one.
	Again, Differs bool

	// What becomes of it: it is complete with this result, or it has failed for this reason with this error.
	// The first line of Result is there as often as Repeated says, if it does.
	Result        string
	Repeated      int
	Reason, Error string
	Exit          int
	Attempts      int // that counted; 0 for one if it failed, else for none beside the last
	Reschedules   int
	Held          time.Duration // after one run it, and all tasks with its key, wait that long: it does not end
	Takes         time.Duration // at least, from its creation to its end
	Log           []string      // its lines; "…" alone for any
	Progress      float64
	Message       string
	Children      []child
	More          int // children beside these
	// Publications are how many tasks each publication has by its ID; -1 if there is no such publication.
	Publications map[string]int
}

// child is a task that the behavior has enqueued.
type child struct {
	// ID may be "task of PUBLICATION": of its first subscriber.
	ID, Queue, Key, Label, Header string
	// Status is where it stands; "" if it is not there.
	Status string
	// After is the field after of what waits for others.
	After string
	// Body is what it is given, Size how many bytes that are, if they are not worth writing down.
	Body               string
	Size               int
	Priority, Attempts int
	Fair, Lane         string // weight and key, maximum and key
	Timeout            time.Duration
}

// read reads the table.
func read(t *testing.T) table {
	t.Helper()
	text, err := os.ReadFile("behaviors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all table
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("behaviors.yaml: %v", err)
	}
	return all
}

// folders are the languages that have a guest: those with a file build.
func folders(t *testing.T) (names []string) {
	t.Helper()
	builds, err := filepath.Glob("*/build")
	if err != nil {
		t.Fatal(err)
	}
	for _, build := range builds {
		names = append(names, filepath.Dir(build))
	}
	return names
}

// lacks is why a language has no such behavior; "" if it has.
func (a table) lacks(language string, b behavior) string {
	for _, feature := range b.Needs {
		if why := a.Languages[language].Lacks[feature]; why != "" {
			return why
		}
	}
	return ""
}

// TestTable: the table is of the languages that there are, and covers all of quern_v1.
func TestTable(t *testing.T) {
	t.Parallel()
	all := read(t)
	if got, want := folders(t), slices.Sorted(maps.Keys(all.Languages)); !slices.Equal(got, want) {
		t.Errorf("guests in %v, languages %v", got, want)
	}
	for name, language := range all.Languages {
		for feature := range language.Lacks {
			if all.Features[feature] == "" {
				t.Errorf("%s lacks %q, which is no feature", name, feature)
			}
		}
	}
	covered, names := map[string]bool{}, map[string]bool{}
	for _, b := range all.Behaviors {
		if b.Name == "" || b.About == "" || names[b.Name] {
			t.Errorf("behavior %q: %q, and there once: %t", b.Name, b.About, !names[b.Name])
		}
		names[b.Name] = true
		for _, feature := range b.Needs {
			if all.Features[feature] == "" {
				t.Errorf("%s needs %q, which is no feature", b.Name, feature)
			}
		}
		for line := range strings.Lines(b.Input) {
			verb, function := called(line)
			if verb == "" {
				continue
			}
			call, ok := all.Calls[verb]
			if !ok {
				t.Errorf("%s: %q is no call", b.Name, verb)
			}
			covered[verb+" "], covered[function] = true, true
			for _, function := range call.Uses {
				covered[function] = true
			}
		}
		for _, word := range strings.Fields(b.Result) {
			covered[word] = true
		}
	}
	covered["await "] = true // by every language's test of the end of its host
	for verb := range all.Calls {
		if !covered[verb+" "] {
			t.Errorf("no behavior calls %s", verb)
		}
	}
	for _, name := range specified(t) {
		if !covered[name] && all.Elsewhere[name] == "" {
			t.Errorf("no behavior has %s", name)
		}
	}
}

// called is the verb of a line of an input, and the function that a raw call names. There is neither in a line that is nothing.
func called(line string) (verb, function string) {
	words := append(strings.Fields(line), "", "", "", "")
	switch {
	case strings.HasPrefix(words[0], "#"):
		return "", ""
	case words[0] == "on":
		words = words[2:]
	case words[0] == "once":
		words = words[1:]
	}
	if words[0] == "raw" {
		function = words[1]
	}
	return words[0], function
}

func TestCalled(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]string{
		"": {}, "\n": {}, "# nothing\n": {}, "#nothing": {}, "on": {}, "on 2": {}, "once": {},
		"size\n": {"size"}, "on 2 size": {"size"}, "once end 75 -": {"end"}, "raw http 0 0 0 0": {"raw", "http"}, "raw": {"raw"},
		"on 1 raw random & 1": {"raw", "random"},
	} {
		if verb, function := called(line); verb != want[0] || function != want[1] {
			t.Errorf("%q calls %q %q, want %q", line, verb, function, want)
		}
	}
}

// specified are the names of all functions and errors of quern_v1.
func specified(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (?:`([a-z_]+)`|−\\d+ \\| (E[A-Z]+)) \\|")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		names = append(names, row[1]+row[2])
	}
	if len(names) < 38 {
		t.Fatalf("ABI.md has only %q", names)
	}
	return names
}

var update = flag.Bool("update", false, "write the results into README.md anew")

// TestReadme: README.md has the results. TestConformance proves what stands there.
func TestReadme(t *testing.T) {
	t.Parallel()
	all := read(t)
	languages := slices.Sorted(maps.Keys(all.Languages))
	var b strings.Builder
	b.WriteString("| behavior | | " + strings.Join(languages, " | ") + " |\n")
	b.WriteString("|---|---|" + strings.Repeat(":-:|", len(languages)) + "\n")
	for _, behavior := range all.Behaviors {
		b.WriteString("| " + behavior.Name + " | " + behavior.About + " |")
		for _, language := range languages {
			if all.lacks(language, behavior) == "" {
				b.WriteString(" ✓ |")
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteByte('\n')
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(text, []byte("| behavior |"))
	if start < 0 {
		t.Fatal("README.md has no table of behaviors")
	}
	end := start + bytes.Index(append(text[start:], "\n\n"...), []byte("\n\n")) + 1
	diff := udiff.Unified("README.md", "behaviors.yaml", string(text[start:min(end, len(text))]), b.String())
	if diff == "" {
		return
	}
	if !*update {
		t.Fatalf("the table in README.md is not that of behaviors.yaml: go test ./sdk/conformance -run TestReadme$ -update\n%s", diff)
	}
	changed := slices.Concat(text[:start], []byte(b.String()), text[min(end, len(text)):])
	if err := os.WriteFile("README.md", changed, 0o644); err != nil {
		t.Fatal(err)
	}
}
