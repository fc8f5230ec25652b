package queue_test

import (
	"errors"
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

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// The names are an interface: Blueque's package, people with redis-cli and older hosts know them.
func TestKeys(t *testing.T) {
	t.Parallel()
	k := store.Keys{Tenant: "blueque"}
	for want, got := range map[string]string{
		"blueque_queues":                    k.Queues(),
		"blueque_pending_tasks_some.queue":  k.Pending("some.queue"),
		"blueque_reserved_tasks_q_host~1_2": k.Reserved("q", "host~1_2"),
		"blueque_started_tasks_q":           k.Started("q"),
		"blueque_complete_tasks_q":          k.Complete("q"),
		"blueque_failed_tasks_q":            k.Failed("q"),
		"blueque_scheduled_tasks_q":         k.Scheduled("q"),
		"blueque_listeners_q":               k.Listeners("q"),
		"blueque_task_id":                   k.Task("id"),
		"blueque_channel_q":                 k.Channel("q"),
		"blueque_done_id":                   k.Done("id"),
		"blueque_nodes":                     k.Nodes(),
		"blueque_node_host~1_2":             k.Node("host~1_2"),
		"blueque_tasks_q":                   k.Index("q"),
		"blueque_sample":                    k.Sample(),
		"blueque_paused":                    k.Paused(),
		"blueque_bytes_id":                  k.Bytes("id"),
		"blueque_log_id":                    k.Log("id"),
		"blueque_attempts_id":               k.Attempts("id"),
		"blueque_stats_q":                   k.Stats("q"),
		"blueque_purged_q":                  k.Purged("q"),
		"blueque_duty_due":                  k.Duty("due"),
		"blueque_version":                   k.Version(),
		"blueque_control":                   k.Control(),
		"blueque_limits":                    k.Limits(),
		"blueque_quotas":                    k.Quotas(),
		"blueque_kvs":                       k.Buckets(),
		"blueque_logs":                      k.Logs(),
		"blueque_releases":                  k.Releases(),
		"blueque_release_mail":              k.Release("mail"),
		"blueque_pieces":                    k.Pieces(),
		"blueque_piece_ab":                  k.Piece("ab"),
		"blueque_records":                   k.Records(),
		"blueque_pending_080_q":             k.Level("080", "q"),
		"blueque_priorities_q":              k.Priorities("q"),
		"blueque_expiry_q":                  k.Expiry("q"),
		"blueque_keys_q":                    k.Keyed("q"),
		"blueque_unique_q_ab":               k.Unique("q", "ab"),
		"blueque_audit":                     k.Audit(),
		"blueque_once_id":                   k.Once("id"),
		"blueque_minute_28333333":           k.Minute("28333333"),
		"blueque_hour_472222":               k.Hour("472222"),
		"blueque_blocked_q":                 k.Blocked("q"),
		"blueque_after_id":                  k.After("id"),
		"blueque_children_id":               k.Children("id"),
		"blueque_ended":                     k.Ended(),
		"blueque_ticks":                     k.Ticks(),
		"blueque_schedule_id":               k.Schedule("id"),
		"blueque_jobs":                      k.Jobs(),
		"blueque_job_id":                    k.Job("id"),
		"blueque_job_items_id":              k.JobItems("id"),
		"blueque_job_ends_id":               k.JobEnds("id"),
		"blueque_subscriptions":             k.Subscriptions(),
		"blueque_generation":                k.Generation(),
		"blueque_topics":                    k.Topics(),
		"blueque_topic_orders":              k.Topic("orders"),
		"blueque_publications_orders":       k.Publications("orders"),
		"blueque_publishing":                k.Publishing(),
		"blueque_publication_id":            k.Publication("id"),
		"blueque_published_id":              k.Published("id"),
		"{acme}_task_id":                    store.Keys{Tenant: "{acme}"}.Task("id"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// keysInCode reads from keys.go which keys there are, with the protocol's letters for their parts.
func keysInCode(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "internal/store/keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]string{"priority": "P", "hash": "H", "queue": "Q", "id": "ID", "node": "L", "listener": "L", "name": "NAME", "number": "N", "topic": "T"}
	var names []string
	for _, decl := range file.Decls {
		method, ok := decl.(*ast.FuncDecl)
		if !ok || method.Recv == nil || method.Name.Name == "Key" {
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
	for _, path := range must[[]string](t)(filepath.Glob("internal/store/scripts/*.lua")) {
		if name := strings.TrimSuffix(filepath.Base(path), ".lua"); name != "prelude" && name != "batch" {
			files = append(files, name)
		}
	}
	if page := rows(section(t, "Transitions")); !slices.Equal(page, files) || len(files) != len(store.AllScripts) {
		t.Errorf("PROTOCOL.md names\n%v\nscripts holds\n%v\n%d are loaded", page, files, len(store.AllScripts))
	}
}

func TestValidTenant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"blueque", "a", "0-9", "-", "{acme}", "{a}", strings.Repeat("x", 32), "{" + strings.Repeat("x", 32) + "}"} {
		if err := queue.ValidTenant(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", "A", "a_b", "a b", "é", "a.b", "{}", "{", "}", "{a", "a}", "{a}b", "{{a}}", "a\n", strings.Repeat("x", 33), "{" + strings.Repeat("x", 33) + "}",
	} {
		if err := queue.ValidTenant(name); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := queue.New("redis://127.0.0.1:1", queue.Config{Tenant: "a_b"}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a client of such a tenant: %v", err)
	}
	if _, err := queue.New("redis://127.0.0.1:1", queue.Config{Lease: 999 * time.Millisecond}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a client with a short lease: %v", err)
	}
}

func TestValidQueueAndID(t *testing.T) {
	t.Parallel()
	for what, valid := range map[string]func(string) error{"queue": queue.ValidQueue, "task ID": queue.ValidID} {
		for _, name := range []string{"q", "some.queue", "a_b", "!", "~", "a/b:c", strings.Repeat("x", 128)} {
			if err := valid(name); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"", " ", "a b", "a\tb", "a\x00", "a\x7f", "é", ".", "..", strings.Repeat("x", 129)} {
			if err := valid(name); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), what+" "+strconv.Quote(name)) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}
