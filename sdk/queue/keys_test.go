package queue

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The names are an interface: Blueque's package, people with redis-cli and older hosts know them.
func TestKeys(t *testing.T) {
	t.Parallel()
	k := keys{"blueque"}
	for want, got := range map[string]string{
		"blueque_queues":                    k.queues(),
		"blueque_pending_tasks_some.queue":  k.pending("some.queue"),
		"blueque_reserved_tasks_q_host~1_2": k.reserved("q", "host~1_2"),
		"blueque_started_tasks_q":           k.started("q"),
		"blueque_complete_tasks_q":          k.complete("q"),
		"blueque_failed_tasks_q":            k.failed("q"),
		"blueque_scheduled_tasks_q":         k.scheduled("q"),
		"blueque_listeners_q":               k.listeners("q"),
		"blueque_task_id":                   k.task("id"),
		"blueque_channel_q":                 k.channel("q"),
		"blueque_done_id":                   k.done("id"),
		"blueque_nodes":                     k.nodes(),
		"blueque_node_host~1_2":             k.node("host~1_2"),
		"blueque_tasks_q":                   k.index("q"),
		"blueque_sample":                    k.sample(),
		"blueque_paused":                    k.paused(),
		"blueque_bytes_id":                  k.bytes("id"),
		"blueque_log_id":                    k.log("id"),
		"blueque_attempts_id":               k.attempts("id"),
		"blueque_stats_q":                   k.stats("q"),
		"blueque_purged_q":                  k.purged("q"),
		"blueque_duty_due":                  k.duty("due"),
		"blueque_version":                   k.version(),
		"blueque_control":                   k.control(),
		"blueque_limits":                    k.limits(),
		"blueque_pending_080_q":             k.level("080", "q"),
		"blueque_priorities_q":              k.priorities("q"),
		"blueque_expiry_q":                  k.expiry("q"),
		"blueque_keys_q":                    k.keyed("q"),
		"blueque_unique_q_ab":               k.unique("q", "ab"),
		"blueque_audit":                     k.audit(),
		"blueque_once_id":                   k.once("id"),
		"blueque_minute_28333333":           k.minute("28333333"),
		"blueque_hour_472222":               k.hour("472222"),
		"blueque_blocked_q":                 k.blocked("q"),
		"blueque_after_id":                  k.after("id"),
		"blueque_children_id":               k.children("id"),
		"blueque_ended":                     k.ended(),
		"blueque_ticks":                     k.ticks(),
		"blueque_schedule_id":               k.schedule("id"),
		"blueque_jobs":                      k.jobs(),
		"blueque_job_id":                    k.job("id"),
		"blueque_job_items_id":              k.jobItems("id"),
		"blueque_job_ends_id":               k.jobEnds("id"),
		"blueque_subscriptions":             k.subscriptions(),
		"blueque_generation":                k.generation(),
		"blueque_topics":                    k.topics(),
		"blueque_topic_orders":              k.topic("orders"),
		"blueque_publications_orders":       k.publications("orders"),
		"blueque_publishing":                k.publishing(),
		"blueque_publication_id":            k.publication("id"),
		"blueque_published_id":              k.published("id"),
		"{acme}_task_id":                    keys{"{acme}"}.task("id"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// keysInCode reads from keys.go which keys there are, with the protocol's letters for their parts.
func keysInCode(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]string{"priority": "P", "hash": "H", "queue": "Q", "id": "ID", "node": "L", "listener": "L", "name": "NAME", "number": "N", "topic": "T"}
	var names []string
	for _, decl := range file.Decls {
		method, ok := decl.(*ast.FuncDecl)
		if !ok || method.Recv == nil || method.Name.Name == "key" {
			continue
		}
		name := "NS"
		for _, arg := range method.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.CallExpr).Args {
			switch arg := arg.(type) {
			case *ast.BasicLit:
				text := must[string](t)(strconv.Unquote(arg.Value))
				name += "_" + text
			case *ast.Ident:
				name += "_" + letters[arg.Name]
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// section is the text of a heading of PROTOCOL.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	text := string(must[[]byte](t)(os.ReadFile("PROTOCOL.md")))
	_, text, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("PROTOCOL.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// rows are the first cells of a text's tables: what stands in code there, without the headers.
func rows(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| `") {
			for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
				names = append(names, match[1])
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestProtocolNamesEveryKey(t *testing.T) {
	t.Parallel()
	code := keysInCode(t)
	if len(code) < 20 || !slices.Contains(code, "NS_reserved_tasks_Q_L") {
		t.Fatalf("keys.go is not read: %v", code)
	}
	if page := rows(section(t, "Keys")); !slices.Equal(page, code) {
		t.Errorf("PROTOCOL.md names\n%v\nkeys.go makes\n%v", page, code)
	}
}

func TestProtocolNamesEveryScript(t *testing.T) {
	t.Parallel()
	var files []string
	for _, path := range must[[]string](t)(filepath.Glob("scripts/*.lua")) {
		if name := strings.TrimSuffix(filepath.Base(path), ".lua"); name != "prelude" && name != "batch" {
			files = append(files, name)
		}
	}
	if page := rows(section(t, "Transitions")); !slices.Equal(page, files) || len(files) != len(allScripts) {
		t.Errorf("PROTOCOL.md names\n%v\nscripts holds\n%v\n%d are loaded", page, files, len(allScripts))
	}
}

func TestValidTenant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"blueque", "a", "0-9", "-", "{acme}", "{a}", strings.Repeat("x", 32), "{" + strings.Repeat("x", 32) + "}"} {
		if err := ValidTenant(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", "A", "a_b", "a b", "é", "a.b", "{}", "{", "}", "{a", "a}", "{a}b", "{{a}}", "a\n", strings.Repeat("x", 33), "{" + strings.Repeat("x", 33) + "}",
	} {
		if err := ValidTenant(name); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := New("redis://127.0.0.1:1", Config{Tenant: "a_b"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a client of such a tenant: %v", err)
	}
	if _, err := New("redis://127.0.0.1:1", Config{Lease: 999 * time.Millisecond}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a client with a short lease: %v", err)
	}
}

func TestValidQueueAndID(t *testing.T) {
	t.Parallel()
	for what, valid := range map[string]func(string) error{"queue": ValidQueue, "task ID": ValidID} {
		for _, name := range []string{"q", "some.queue", "a_b", "!", "~", "a/b:c", strings.Repeat("x", 128)} {
			if err := valid(name); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"", " ", "a b", "a\tb", "a\x00", "a\x7f", "é", ".", "..", strings.Repeat("x", 129)} {
			if err := valid(name); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), what+" "+strconv.Quote(name)) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestListenerID(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"build-7.example.com": "build-7.example.com", "my_host": "my-host", "my host\n": "my-host-", "": "localhost",
		"a~b": "a~b", "hôte": "h-te", "_": "-", "del\x7f": "del-",
	} {
		id := listenerID(host, 4711)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(want) + `~[0-9a-f]{8}_4711$`).MatchString(id) {
			t.Errorf("hostname %q: %q", host, id)
		}
		// As Blueque parses it.
		at := strings.LastIndex(id, "_")
		if pid, err := strconv.Atoi(id[at+1:]); err != nil || pid != 4711 || strings.Contains(id[:at], "_") {
			t.Errorf("Blueque cannot parse %q", id)
		}
		if !isQuernListener(id) || strings.ContainsAny(id, " \n") {
			t.Errorf("%q", id)
		}
	}
	if id := (&Client{}).Node().ID(); id == (&Client{}).Node().ID() || !strings.HasSuffix(id, fmt.Sprintf("_%d", os.Getpid())) {
		t.Errorf("twice the same, or not of this process: %q", id)
	}
	for _, id := range []string{"host_1", "host~1_2", "host~0123456g_2", "host~01234567_", "host~01234567_2x"} {
		if isQuernListener(id) {
			t.Errorf("%q counts as Quern's", id)
		}
	}
}
