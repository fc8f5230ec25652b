package conformance_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// asked asks for all that a record has.
const asked = `size
text 0
config size
clock 0
clock 1
random
sleep 1
increment kit times 1
set kit replay a%20value 0
get kit replay
get kit lacking
swap kit replay a%20value other 0
list kit re ! 10
get small lacking
delete kit replay
secret api_key
secret lost
set kit secret a%20secret 0
get kit secret
http GET URL/asked x - 1000
http GET URL/missing x - 1000
http GET CLOSED x - 1000
dependencies
result before
save checkpoint
enqueue children body
random
clock 0
`

// statements are asked of a database, in the languages that have them.
const statements = `sql shop 1 a SELECT $1::text, random(), now()
sql shop 0 SELECT broken
rollback shop
`

// TestReplay: a run in each language that asks for everything is replayed from the record that its host has kept. It
// ends as the run did, with the same output, error or trap, at the same fuel.
func TestReplay(t *testing.T) {
	t.Parallel()
	all := read(t)
	for _, language := range folders(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			lacks := all.Languages[language].Lacks
			guest := build(t, language, all.Languages[language].Engine)
			dir, plugin, input := folder(t, guest), "kit", asked
			if lacks["sql"] == "" {
				plugin, input = "databases", asked+statements
			}
			recordAll(t, dir, plugin)
			n := start(t, dir).bounded(t)
			if plugin == "databases" {
				n.withDatabase(t)
			}
			engine, err := runtime.New(n.ctx, runtime.Config{CacheDir: shared.compiled})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = engine.Close(context.Background()) })
			module, err := engine.Load(n.ctx, guest)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = module.Close(context.Background()) })
			if _, err := n.client.Queue("kit").Enqueue(n.ctx, []byte("write result"), queue.Options{ID: "before"}); err != nil {
				t.Fatal(err)
			}
			ends := map[string]string{"complete": "", "fails": "end 1 no%20ink\n"}
			if lacks["crash"] == "" {
				ends["traps"] = "trap\n"
			}
			for name, end := range ends {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					n := n.bounded(t)
					record, output := n.recorded(t, plugin, addressed(input+end), name)
					if want := map[string]string{"complete": "complete", "traps": "trap"}[name]; want != "" && record.Outcome.Kind != want {
						t.Errorf("the run ended as %+v", record.Outcome)
					}
					got := n.replayed(t, module, record)
					if is := got.Recorded(); !reflect.DeepEqual(is, record.Outcome) {
						t.Errorf("the replay ends as\n%+v, recorded\n%+v\n%v", is, record.Outcome, got.Err)
					}
					if got.Kind == runtime.Complete && string(got.Output) != string(output) {
						t.Errorf("the replay returns\n%s\nrecorded\n%s", got.Output, output)
					}
				})
			}
		})
	}
}

// recordAll lets the hosts of a folder record a plugin.
func recordAll(t *testing.T, dir, plugin string) {
	t.Helper()
	path := filepath.Join(dir, plugin+".yaml")
	manifest, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest = append(manifest, "record: sampled\nretry: {max_attempts: 1}\n"...)
	if err := os.WriteFile(path, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
}

// sampledID returns an ID by which the record of a completed run is kept.
func sampledID(prefix string) string {
	for i := 0; ; i++ {
		id := fmt.Sprint(strings.ReplaceAll(prefix, " ", "-"), "-", i)
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		if h.Sum32()%100 == 0 {
			return id
		}
	}
}

// recorded runs a task that waits for another one, and returns the record of its last run with its result.
func (n *node) recorded(t *testing.T, plugin, input, name string) (record *replay.Record, output []byte) {
	t.Helper()
	id, err := n.client.Queue(plugin).Enqueue(n.ctx, []byte(input), queue.Options{
		ID: sampledID(name), After: []string{"before"}, When: queue.WhenEnded, Headers: map[string]string{"kit": "header"},
	})
	if err != nil {
		t.Fatal(err)
	}
	task, err := n.client.Wait(n.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := manage.New(n.client).Record(n.ctx, id)
	if err != nil {
		t.Fatalf("%v\n%+v", err, task)
	}
	if record, err = replay.Decode(data); err != nil {
		t.Fatal(err)
	}
	record.Input = []byte(input)
	return record, task.Result
}

// replayed replays a record.
func (n *node) replayed(t *testing.T, module *runtime.Module, record *replay.Record) runtime.Outcome {
	t.Helper()
	options := replay.Options{Secrets: map[string][]byte{}}
	for _, name := range record.SecretNames() {
		value, err := os.ReadFile(filepath.Join(n.secrets, n.tenant, name))
		if err != nil {
			t.Fatal(err)
		}
		options.Secrets[name] = []byte(strings.TrimSuffix(string(value), "\n"))
	}
	pool := module.Bind(runtime.ReplayProfile(record, options, nil))
	defer pool.Close()
	return pool.Run(n.ctx, runtime.ReplayCall(record, record.Play(options)))
}
