package queue

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// accessList is the README's command that makes the host's Redis user, by words.
func accessList(t testing.TB) (words []any) {
	t.Helper()
	block := regexp.MustCompile("(?s)```redis-acl\n(.*?)\n```").FindSubmatch(must[[]byte](t)(os.ReadFile("../../README.md")))
	if block == nil {
		t.Fatal("README.md has no block of redis-acl")
	}
	for word := range strings.FieldsSeq(string(block[1])) {
		words = append(words, word)
	}
	return words
}

// The README's Redis user may call every command that a script names.
func TestAccessListHasTheScriptsCommands(t *testing.T) {
	t.Parallel()
	granted := accessList(t)
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	names := 0
	for _, file := range must[[]os.DirEntry](t)(os.ReadDir("scripts")) {
		for _, match := range call.FindAllSubmatch(must[[]byte](t)(os.ReadFile("scripts/"+file.Name())), -1) {
			names++
			if command := strings.ToLower(string(match[1])); !slices.Contains(granted, any("+"+command)) {
				t.Errorf("%s calls %s, and README.md's ACL has no +%s", file.Name(), match[1], command)
			}
		}
	}
	if names < 100 {
		t.Errorf("found %d calls of commands in the scripts", names)
	}
}

// As that user, tasks run and are kept in order, whatever their listeners do.
func TestAccessListIsEnough(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := admin.Do(ctx, accessList(t)...).Err(); err != nil {
		t.Fatalf("ACL of the README: %v", err)
	}
	client := must[*Client](t)(New("redis://quern:PASSWORD@"+server.Addr()+"/0?read_timeout=20s", Config{}))
	defer client.Close()
	w := &world{Client: client, rdb: client.rdb.(*redis.Client), ctx: ctx}

	must[[]Receipt](t)(w.Queue("q").EnqueueMany(ctx, make([]Spec, 3)))
	w.enqueue(t, "q", "", Options{Delay: time.Millisecond})
	eventually(t, "the task is due", func() bool { return must[int](t)(w.Queue("q").EnqueueDue(ctx)) == 1 })
	node := w.node(t, "q")
	want := Want{Queue: "q", Count: 4, Start: true, Plugin: "p", Digest: "d", MaxRunning: 2, Terms: Terms{MaxCrashes: 1, Dead: "dead"}}
	first := node.Reserve(ctx, []Want{want})[0]
	full := node.Reserve(ctx, []Want{want})[0] // looks for what does not run any more
	if first.Err != nil || full.Err != nil || len(first.Tasks) != 2 || len(full.Tasks) != 0 {
		t.Fatalf("%+v, then %+v", first, full)
	}
	w.settle(t, node, "q", Settlement{Hold: first.Tasks[0].Hold(), Result: []byte("\xff")})
	w.die(t, node)
	if got := must[Reclaimed](t)(w.Reclaim(ctx, node.ID(), 0)); got.Failed != 1 {
		t.Errorf("reclaimed %+v, want one task that failed", got)
	}
	must[[]Quarantine](t)(w.Quarantines(ctx))
	if err := w.Queue("q").Recount(ctx); err != nil {
		t.Error(err)
	}
	if n := must[int](t)(w.Queue("q").Purge(ctx, PurgeOptions{Everything: true})); n != 2 {
		t.Errorf("purged %d tasks, want 2", n)
	}
	for _, entry := range must[[]*redis.ACLLogEntry](t)(admin.ACLLog(ctx, 100).Result()) {
		t.Errorf("Redis denied %s %q to %s", entry.Reason, entry.Object, entry.Username)
	}
}
