package queue_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/mover"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// furnish fills the tenant with keys of all types, small and large ones, text and bytes. It returns tasks by status.
func furnish(t *testing.T, w *world) (ids map[queue.Status][]string) {
	t.Helper()
	ids = w.spread(t, "q")
	w.enqueue(t, "q", "\xff\xfe", queue.Options{ID: "bytes", Priority: new(70), Key: "k", Labels: map[string]string{"<a>": "ü&"}})
	must[queue.Subscription](t)(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"}))
	must[queue.Published](t)(w.Publish(w.ctx, "orders", bytes.Repeat([]byte("x"), 1<<20), queue.PublishOptions{}))
	must[queue.Put](t)(w.PutSchedule(w.ctx, queue.Schedule{ID: "nightly", Queue: "q", Cron: "@daily"}, false))
	w.enqueue(t, "q", "", queue.Options{Unique: &queue.Unique{For: time.Hour}})
	if err := manage.New(w.Client).Audit(w.ctx, manage.AuditEntry{Who: "ada", Action: "pause-queue"}); err != nil {
		t.Fatal(err)
	}
	specs := make([]queue.Spec, 2500) // a list, a sorted set and an index in parts
	for i := range specs {
		specs[i].Delay = time.Duration(i%2) * time.Hour
	}
	must[[]queue.Receipt](t)(w.Queue("large").EnqueueMany(w.ctx, specs))
	k := w.Store().Keys
	must[[]redis.Cmder](t)(w.rdb.Pipelined(w.ctx, func(p redis.Pipeliner) error {
		p.HSet(w.ctx, k.Key("kv", "few"), "a", strings.Repeat("large", 100<<10), "b", "\xff")
		for i := range 3000 {
			p.HSet(w.ctx, k.Key("kv", "b"), fmt.Sprint("k", i), "\xff")
			p.SAdd(w.ctx, k.Key("aset"), i)
			p.XAdd(w.ctx, &redis.XAddArgs{Stream: k.Key("reports_r"), Values: []string{"task", fmt.Sprint(i), "other", "\n"}})
		}
		return nil
	}))
	return ids
}

// content reads all keys of a tenant, without its name.
func content(t *testing.T, ctx context.Context, rdb *redis.Client, tenant string) map[string]string {
	t.Helper()
	keys := must[[]string](t)(rdb.Keys(ctx, tenant+"_*").Result())
	// each asks for something of all keys in one round trip.
	each := func(ask func(p redis.Pipeliner, i int)) []redis.Cmder {
		return must[[]redis.Cmder](t)(rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range keys {
				ask(p, i)
			}
			return nil
		}))
	}
	kinds := each(func(p redis.Pipeliner, i int) { p.Type(ctx, keys[i]) })
	lives := each(func(p redis.Pipeliner, i int) { p.TTL(ctx, keys[i]) })
	values := each(func(p redis.Pipeliner, i int) {
		switch kinds[i].(*redis.StatusCmd).Val() {
		case "string":
			p.Get(ctx, keys[i])
		case "hash":
			p.HGetAll(ctx, keys[i])
		case "list":
			p.LRange(ctx, keys[i], 0, -1)
		case "set":
			p.Sort(ctx, keys[i], &redis.Sort{Alpha: true})
		case "zset":
			p.ZRangeWithScores(ctx, keys[i], 0, -1)
		case "stream":
			p.XRange(ctx, keys[i], "-", "+")
		}
	})
	all := map[string]string{}
	for i, key := range keys {
		name := strings.TrimPrefix(key, tenant+"_")
		all[name] = strings.Replace(fmt.Sprint(values[i]), key, "", 1)
		if life := lives[i].(*redis.DurationCmd).Val(); life > 0 {
			all[name] += fmt.Sprint(" expires in hours: ", int(life.Hours()+0.5))
		}
	}
	return all
}

// lasting is content without the keys that live for seconds.
func lasting(t *testing.T, ctx context.Context, rdb *redis.Client, tenant string) map[string]string {
	t.Helper()
	all := content(t, ctx, rdb, tenant)
	maps.DeleteFunc(all, func(name, _ string) bool {
		return name == "nodes" || strings.HasPrefix(name, "node_") || strings.HasPrefix(name, "duty_") || name == "waiters"
	})
	return all
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: key %s is %.200q, want %.200q", what, name, got[name], value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: key %s is new: %.200q", what, name, got[name])
		}
	}
}

// other returns the Mover of another tenant.
func (w *world) other(t *testing.T, tenant string) mover.Mover {
	t.Helper()
	client := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: tenant}))
	t.Cleanup(func() { _ = client.Close() })
	return mover.New(client)
}

// A tenant that is exported and imported under another name has the same keys there, and tasks run.
func TestExportAndImport(t *testing.T) {
	w := setup(t)
	ran := furnish(t, w)
	m := mover.New(w.Client)
	path := filepath.Join(t.TempDir(), "acme.quern")
	before := lasting(t, w.ctx, w.rdb, w.Tenant())
	done := must[mover.Moved](t)(m.Export(w.ctx, path, nil))
	if _, err := m.Export(w.ctx, path, nil); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a second export to the same file: %v", err)
	}
	if done.Keys != int64(len(before)) {
		t.Errorf("%d keys are exported, of %d", done.Keys, len(before))
	}
	for name, value := range before {
		if strings.Contains(value, w.Tenant()+"_") {
			t.Errorf("key %s has the tenant's name in its value: %.200q", name, value)
		}
	}

	other := queuetest.Tenant()
	into := w.other(t, other)
	for round := range 2 {
		imported := must[mover.Moved](t)(into.Import(w.ctx, path, "ada", round == 1, nil))
		if imported.Keys != done.Keys {
			t.Errorf("%d keys are imported, of %d", imported.Keys, done.Keys)
		}
		same(t, "imported", content(t, w.ctx, w.rdb, other), before)
	}
	if _, err := into.Import(w.ctx, path, "ada", false, nil); !errors.Is(err, mover.ErrInUse) {
		t.Errorf("an import into a tenant that has keys: %v", err)
	}
	same(t, "exported", lasting(t, w.ctx, w.rdb, w.Tenant()), before)

	// Tasks that ran at the time of the export run again.
	fleet := listen.NewFleet(must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: other})))
	for _, dead := range must[[]string](t)(fleet.Unleased(w.ctx)) {
		must[listen.Reclaimed](t)(fleet.Reclaim(w.ctx, dead, 0))
	}
	for _, status := range []queue.Status{queue.Started, queue.Reserved} {
		for _, id := range ran[status] {
			if now := w.rdb.HGet(w.ctx, other+"_task_"+id, "status").Val(); now != string(queue.Pending) {
				t.Errorf("task %s was %s, and is %s", id, status, now)
			}
		}
	}

	host := &world{Client: must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: w.Tenant(), Lease: time.Hour})), ctx: w.ctx}
	defer host.Close()
	host.node(t)
	if _, err := w.other(t, w.Tenant()).Import(w.ctx, path, "ada", true, nil); !errors.Is(err, mover.ErrInUse) {
		t.Errorf("an import beside a live host: %v", err)
	}

	// Damaged files change nothing.
	whole := must[[]byte](t)(os.ReadFile(path))
	third := queuetest.Tenant()
	for what, data := range map[string][]byte{
		"empty": {}, "half": whole[:len(whole)/2], "no end": whole[:len(whole)-20], "other": []byte("hello"),
		"one bit": append(append(slices.Clone(whole[:len(whole)/3]), whole[len(whole)/3]^1), whole[len(whole)/3+1:]...),
	} {
		damaged := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(damaged, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := w.other(t, third).Import(w.ctx, damaged, "ada", false, nil); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := content(t, w.ctx, w.rdb, third); len(got) > 0 {
		t.Errorf("damaged files left %v", got)
	}
}

// An export that is interrupted goes on where it was, with the same result; a part of another server begins anew.
func TestExportGoesOn(t *testing.T) {
	w := setup(t)
	furnish(t, w)
	m := mover.New(w.Client)
	dir := t.TempDir()
	path := filepath.Join(dir, "acme.quern")
	ctx, cancel := context.WithCancel(w.ctx)
	blocks := 0
	if _, err := m.Export(ctx, path, func(mover.Moved) {
		if blocks++; blocks == 3 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("after %d blocks: %v", blocks, err)
	}
	part, err := os.OpenFile(path+".part", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := must[os.FileInfo](t)(part.Stat()).Size()
	_, _ = part.WriteString("\x1f\x8bhalf a block")
	_ = part.Close()
	first := int64(-1)
	done := must[mover.Moved](t)(m.Export(w.ctx, path, func(m mover.Moved) {
		if first < 0 {
			first = m.Keys
		}
	}))
	if now := must[os.FileInfo](t)(os.Stat(path)).Size(); now < size || first < 0 {
		t.Errorf("the file has %d bytes, after %d before", now, size)
	}
	other := queuetest.Tenant()
	// So does an import.
	ctx, cancel = context.WithCancel(w.ctx)
	half, err := w.other(t, other).Import(ctx, path, "ada", false, func(mover.Moved) { cancel() })
	if !errors.Is(err, context.Canceled) || half.Keys == 0 || half.Keys >= done.Keys {
		t.Fatalf("an import that was cancelled: %+v, %v", half, err)
	}
	if imported := must[mover.Moved](t)(w.other(t, other).Import(w.ctx, path, "ada", true, nil)); imported.Keys != done.Keys {
		t.Errorf("%d keys are imported, of %d", imported.Keys, done.Keys)
	}
	same(t, "imported", content(t, w.ctx, w.rdb, other), lasting(t, w.ctx, w.rdb, w.Tenant()))
}

// An export refuses a FILE.part that it did not begin, or that another export writes to, and leaves it as it is.
func TestExportRefusesOtherFiles(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "q", "", queue.Options{})
	m := mover.New(w.Client)
	dir := t.TempDir()
	refused := func(path, want string) {
		t.Helper()
		_, err := m.Export(w.ctx, path, nil)
		if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("export to %q: %v, want %q", path, err, want)
		}
	}
	refused("", "is empty")
	thesis, link := filepath.Join(dir, "thesis"), filepath.Join(dir, "link")
	for _, text := range []string{"all my work", "\x1f"} {
		if err := os.WriteFile(thesis+".part", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(thesis, "is no part of an export of tenant "+w.Tenant())
		if got := string(must[[]byte](t)(os.ReadFile(thesis + ".part"))); got != text {
			t.Errorf("the file has %q", got)
		}
	}
	if err := os.Symlink(thesis+".part", link+".part"); err != nil {
		t.Fatal(err)
	}
	refused(link, "is a symbolic link")

	path := filepath.Join(dir, "acme")
	if err := os.WriteFile(path+".part", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	tried := false
	must[mover.Moved](t)(m.Export(w.ctx, path, func(mover.Moved) {
		if !tried {
			tried = true
			refused(path, "another export writes to")
		}
	}))
	if mode := must[os.FileInfo](t)(os.Stat(path)).Mode(); mode != 0o600 || !tried {
		t.Errorf("the file's mode is %s", mode)
	}
	must[mover.Moved](t)(w.other(t, queuetest.Tenant()).Import(w.ctx, path, "ada", false, nil))
	if err := os.Rename(path, filepath.Join(dir, "b.part")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.other(t, queuetest.Tenant()).Export(w.ctx, filepath.Join(dir, "b"), nil); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a part of another tenant: %v", err)
	}
}

// A file with a right checksum and values that Redis refuses changes nothing.
func TestImportRefusesWrongValues(t *testing.T) {
	w := setup(t)
	for _, line := range []string{
		`"type":"string"`, `"type":"zset","values":["a"]`, `"type":"zset","values":["a","x"]`, `"type":"hash","values":["a"]`,
		`"type":"stream","values":["1-1","[]"]`, `"type":"stream","values":["x","{\"a\":\"b\"}"]`, `"type":"tree","values":["a"]`,
		`"type":"list","values":["?"],"base64":true`, `"type":"list","values":["a"],"more":true`, `"type":"list"`,
	} {
		text := `{"quern_tenant":1,"tenant":"a"}` + "\n" + `{"key":"k",` + line + "}\n"
		file := &bytes.Buffer{}
		zip := gzip.NewWriter(file)
		fmt.Fprintf(zip, `%s{"end":true,"sha256":"%x"}`+"\n", text, sha256.Sum256([]byte(text)))
		_ = zip.Close()
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		tenant := queuetest.Tenant()
		if _, err := w.other(t, tenant).Import(w.ctx, path, "ada", false, nil); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", line, err)
		}
		if got := content(t, w.ctx, w.rdb, tenant); len(got) > 0 {
			t.Errorf("%s left %v", line, got)
		}
	}
}

// A tenant without keys stays so, and one with a damaged key is deleted.
func TestEraseOddTenants(t *testing.T) {
	w := setup(t)
	if done := must[mover.Moved](t)(mover.New(w.Client).Erase(w.ctx, nil)); done.Keys != 0 {
		t.Errorf("%d keys of no tenant are deleted", done.Keys)
	}
	for _, key := range []string{"limits", "pauses", "paused"} {
		w.rdb.RPush(w.ctx, w.Store().Keys.Key(key), "x")
		must[mover.Moved](t)(mover.New(w.Client).Erase(w.ctx, nil))
		if left := content(t, w.ctx, w.rdb, w.Tenant()); len(left) > 0 {
			t.Errorf("with a damaged %s there are %v", key, left)
		}
	}
}

// listed reads the members of the keys that say where the tasks of a queue are.
func listed(t *testing.T, w *world, tenant string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, key := range must[[]string](t)(w.rdb.Keys(w.ctx, tenant+"_*_q*").Result()) {
		switch w.rdb.Type(w.ctx, key).Val() {
		case "list", "set", "zset":
			all[strings.TrimPrefix(key, tenant)] = w.rdb.Sort(w.ctx, key, &redis.Sort{Alpha: true}).Val()
		}
	}
	return all
}

// An export reads each key at another moment, so tasks may be in no list of it, or in one too many. The import puts them
// back, also those of a tenant whose lists it replaces.
func TestImportPutsTasksBack(t *testing.T) {
	w := setup(t)
	lane := queue.Options{ConcurrencyKey: "k", Priority: new(70)}
	node := w.node(t, "q")
	for _, o := range []queue.Options{{ID: "runs"}, {ID: "reserved"}, {ID: "done"}, {ID: "fails"}, {}, {}} {
		if o.ID == "" {
			o = lane
		}
		w.enqueue(t, "q", "", o)
	}
	var holder string
	for i, start := range []bool{true, true, false, true, true} { // the task with a place in the lane first
		got := w.reserve(t, node, "q", start)
		s := listen.Settlement{Claim: got.Claim()}
		switch i {
		case 0:
			holder = got.ID
			continue
		case 1, 2:
			continue
		case 4:
			s.Failure = &queue.Failure{Reason: "error", Message: "no"}
		}
		w.settle(t, node, "q", s)
	}
	w.enqueue(t, "q", "", lane)
	for range 3 {
		w.enqueue(t, "q", "", queue.Options{})
		w.enqueue(t, "q", "", queue.Options{FairKey: "f", Priority: new(20)})
		w.enqueue(t, "q", "", queue.Options{Priority: new(90)})
	}
	w.enqueue(t, "q", "", queue.Options{Delay: time.Hour})
	w.enqueue(t, "q", "", queue.Options{After: []string{"runs"}})
	want := listed(t, w, w.Tenant())
	dir := t.TempDir()
	whole, torn, empty := filepath.Join(dir, "whole"), filepath.Join(dir, "torn"), filepath.Join(dir, "empty")
	m := mover.New(w.Client)
	must[mover.Moved](t)(m.Export(w.ctx, whole, nil))
	for name := range want {
		if name == "_line_q" || name == "_lanes_q" || name == "_keys_q" || strings.HasPrefix(name, "_turns") {
			continue
		}
		w.rdb.Del(w.ctx, w.Tenant()+name)
	}
	w.rdb.ZRem(w.ctx, w.Store().Keys.Lanes("q"), fmt.Sprintf("%x %s", sha1.Sum([]byte("k")), holder))
	// A task in a list although it waits in line would run beside the holder.
	waits := strings.Fields(want["_line_q"][0])[2]
	w.rdb.LPush(w.ctx, w.Store().Keys.Level("070", "q"), waits)
	must[mover.Moved](t)(m.Export(w.ctx, torn, nil))

	other := queuetest.Tenant()
	into := w.other(t, other)
	must[mover.Moved](t)(into.Import(w.ctx, torn, "ada", false, nil))
	check := func(what string) {
		t.Helper()
		got := listed(t, w, other)
		for name, members := range want {
			if !slices.Equal(got[name], members) && !strings.HasPrefix(name, "_turns") {
				t.Errorf("%s: %s has %q, want %q", what, name, got[name], members)
			}
		}
		for name := range got {
			if want[name] == nil {
				t.Errorf("%s: %s is new: %q", what, name, got[name])
			}
		}
	}
	check("torn")
	must[mover.Moved](t)(into.Import(w.ctx, torn, "ada", true, nil))
	check("again")

	// A tenant with other tasks in the same queue keeps them.
	client := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: queuetest.Tenant()}))
	t.Cleanup(func() { _ = client.Close() })
	must[mover.Moved](t)(mover.New(client).Export(w.ctx, empty, nil))
	for _, o := range []queue.Options{{ID: "own"}, {ID: "later", Delay: time.Hour, Deadline: time.Now().Add(24 * time.Hour)}} {
		must[string](t)(client.Queue("q").Enqueue(w.ctx, nil, o))
	}
	must[mover.Moved](t)(mover.New(client).Import(w.ctx, whole, "ada", true, nil))
	k := client.Store().Keys
	if ids := w.rdb.LRange(w.ctx, k.Pending("q"), 0, -1).Val(); len(ids) != len(want["_pending_tasks_q"])+1 || !slices.Contains(ids, "own") {
		t.Errorf("after an import into a tenant with tasks, %q are pending", ids)
	}
	for _, key := range []string{k.Scheduled("q"), k.Index("q"), k.Expiry("q")} {
		if w.rdb.ZScore(w.ctx, key, "later").Err() != nil {
			t.Errorf("%s lost a task", key)
		}
	}
}

// An import ends its own pauses and those of the export, and no others. Limits and quotas of the tenant stay in force.
func TestImportIntoSettings(t *testing.T) {
	t.Parallel()
	for name, furnished := range map[string]bool{"the file has limits": true, "the file has none": false} {
		t.Run(name, func(t *testing.T) {
			w := setup(t)
			m := mover.New(w.Client)
			w.enqueue(t, "q", "", queue.Options{})
			path := filepath.Join(t.TempDir(), "acme.quern")
			do := func(errs ...error) {
				t.Helper()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			if furnished {
				pause := manage.Pause{Queue: "q", Reason: "theirs"}
				do(w.Queue("q").SetLimit(w.ctx, 7), manage.New(w.Client).Pauses().Pause(w.ctx, pause), m.Pause(w.ctx, "ada", mover.ReasonExport))
			}
			must[mover.Moved](t)(m.Export(w.ctx, path, nil))
			do(m.Resume(w.ctx))

			client := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: queuetest.Tenant()}))
			t.Cleanup(func() { _ = client.Close() })
			settings := manage.New(client)
			do(
				manage.SetQuotas(w.ctx, client, manage.Quotas{"tasks_waiting": "2"}),
				client.Queue("own").SetLimit(w.ctx, 5),
				settings.Pauses().Pause(w.ctx, manage.Pause{Queue: "stopped", Accepting: true, Reason: "mine"}),
				settings.Pauses().Pause(w.ctx, manage.Pause{Reason: "mine"}),
			)
			want := must[[]manage.Pause](t)(settings.Pauses().List(w.ctx))
			must[mover.Moved](t)(mover.New(client).Import(w.ctx, path, "ada", true, nil))

			theirs := must[[]manage.Pause](t)(manage.New(w.Client).Pauses().List(w.ctx))
			if furnished != (len(theirs) == 1) {
				t.Errorf("the exported tenant has the pauses %+v", theirs)
			}
			want = slices.Insert(want, 1, theirs...) // by queue, after that of the tenant
			if got := must[[]manage.Pause](t)(settings.Pauses().List(w.ctx)); !slices.Equal(got, want) {
				t.Errorf("pauses %+v, want %+v", got, want)
			}
			if _, err := client.Queue("stopped").Enqueue(w.ctx, nil, queue.Options{}); !errors.Is(err, manage.ErrPaused) {
				t.Errorf("enqueue in a paused queue: %v", err)
			}
			own, imported := must[int64](t)(client.Queue("own").Limit(w.ctx)), must[int64](t)(client.Queue("q").Limit(w.ctx))
			if own != 5 || furnished != (imported == 7) {
				t.Errorf("limits %d and %d", own, imported)
			}
			_, err := client.Queue("own").EnqueueMany(w.ctx, make([]queue.Spec, 3))
			if !errors.Is(err, manage.ErrQuota) {
				t.Errorf("the tenant's quota is not in force: %v", err)
			}
		})
	}
}

// All keys of a tenant are deleted, and none of another; the producer of a tenant that is being deleted is refused.
func TestErase(t *testing.T) {
	w := setup(t)
	furnish(t, w)
	other := queuetest.Tenant()
	longer := w.Tenant() + "2"
	for _, name := range []string{other, longer} {
		w.rdb.Set(w.ctx, name+"_version", "1", 0)
	}
	refused := error(nil)
	ctx, cancel := context.WithCancel(w.ctx)
	if _, err := mover.New(w.Client).Erase(ctx, func(mover.Moved) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatalf("a deletion that was cancelled: %v", err)
	}
	done := must[mover.Moved](t)(mover.New(w.Client).Erase(w.ctx, func(mover.Moved) {
		if refused == nil {
			_, refused = w.Queue("q").Enqueue(w.ctx, nil, queue.Options{})
		}
	}))
	if !errors.Is(refused, manage.ErrPaused) {
		t.Errorf("an enqueue meanwhile: %v", refused)
	}
	if left := content(t, w.ctx, w.rdb, w.Tenant()); len(left) > 0 || done.Keys < 2000 {
		t.Errorf("after %d keys there are %v", done.Keys, left)
	}
	for _, name := range []string{other, longer} {
		if w.rdb.Exists(w.ctx, name+"_version").Val() != 1 {
			t.Errorf("tenant %s lost a key", name)
		}
	}
	// Somebody who goes on writing is reported.
	w.rdb.Set(w.ctx, w.Store().Keys.Version(), "1", 0)
	_, err := mover.New(w.Client).Erase(w.ctx, func(mover.Moved) { w.rdb.Set(w.ctx, w.Store().Keys.Version(), "1", 0) })
	if !errors.Is(err, mover.ErrInUse) || !strings.Contains(err.Error(), w.Store().Keys.Version()) {
		t.Errorf("with a writer: %v", err)
	}
}

// Who exports, imports and deletes needs what the role mover has, and nothing else.
func TestMoversAccessList(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	others := newWorld(t, server.URL())
	others.Store().Keys, others.Config().Tenant = store.Keys{Tenant: "acme"}, "acme"
	furnish(t, others)
	list := queuetest.AccessList(t, "ACL.md", "acme-mover")
	if err := admin.Do(t.Context(), list...).Err(); err != nil {
		t.Fatal(err)
	}
	client := must[*queue.Client](t)(queue.New("redis://acme-mover:PASSWORD@"+server.Addr()+"/0", queue.Config{Tenant: "acme"}))
	defer client.Close()
	w := &world{rdb: client.Store().RDB.(*redis.Client), ctx: t.Context()}
	sent := queuetest.Watch(w.rdb)
	m := manage.New(client)
	path := filepath.Join(t.TempDir(), "file")
	for _, accepting := range []bool{true, false} {
		p := manage.Pause{Accepting: accepting}
		if err := errors.Join(m.Pauses().Pause(w.ctx, p), m.Pauses().Resume(w.ctx, p)); err != nil {
			t.Fatal(err)
		}
	}
	must[[]manage.Pause](t)(m.Pauses().List(w.ctx))
	admin.Del(t.Context(), "acme_nodes")
	must[mover.Moved](t)(mover.New(client).Export(w.ctx, path, nil))
	must[mover.Moved](t)(mover.New(client).Import(w.ctx, path, "ada", true, nil))
	must[mover.Moved](t)(mover.New(client).Erase(w.ctx, nil))
	needed := sent.Needed()
	granted := map[string]bool{}
	for _, word := range list {
		if command, ok := strings.CutPrefix(word.(string), "+"); ok {
			granted[command] = true
		}
	}
	for command := range needed {
		if !granted[command] {
			t.Errorf("a mover needs %s", command)
		}
	}
	for command := range granted {
		if !needed[command] && !slices.Contains([]string{"hgetall"}, command) {
			t.Errorf("a mover does not need %s", command)
		}
	}
	if err := w.rdb.Get(w.ctx, "beta_version").Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("another tenant: %v", err)
	}
}
