package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/release"
)

// stagedRequest asks for tasks of a plugin of which release 7 serves, and release 8 is a canary.
func stagedRequest(name string, stage *release.Stage, others ...listen.OtherRelease) listen.ReserveRequest {
	return listen.ReserveRequest{
		Queue: name, Count: listen.MaxReserve, Start: true, Plugin: "mail", Digest: "sha256:7", Version: "0.7", Release: 7,
		Canary: &listen.CanaryShare{Number: 8, Percent: stage.Percent(), Needle: stage.Share.Needle()}, Others: others,
	}
}

var canaryHere = listen.OtherRelease{
	Number: 8, Plugin: "mail", Digest: "sha256:8", Version: "0.8", FailurePolicy: listen.FailurePolicy{NoRerun: true},
}

// Each task runs on the release that release.Stage.Takes names, and its hash names the version of that release.
func TestReserveForCanary(t *testing.T) {
	everywhere(t, testReserveForCanary)
}

func testReserveForCanary(t *testing.T, w *world) {
	labels := map[string]string{"customer": "acme", `cus"tomer`: "a,b"}
	for name, share := range map[string]release.Share{
		"Percent": {Steps: []release.Step{{Percent: 20}}},
		"Small":   {Steps: []release.Step{{Percent: 0.5}}},
		"Label":   {Label: "customer", Value: "acme"},
		"Quote":   {Label: `cus"tomer`, Value: "a,b"},
		"Part":    {Label: `tomer`, Value: "a,b"},
		"Value":   {Label: "customer", Value: "acm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, stage := w.node(t, name), &release.Stage{Share: share}
			want := make(map[string]map[string]string)
			for i := range 2 * listen.MaxReserve {
				var with map[string]string
				if i%2 == 0 {
					with = labels
				}
				want[w.enqueue(t, name, "x", queue.Options{ID: fmt.Sprint(name, i), Labels: with})] = with
			}
			for range 2 {
				reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest(name, stage, canaryHere)})[0]
				if reply.Err != nil || len(reply.Tasks) != listen.MaxReserve || len(reply.Lacking) > 0 {
					t.Fatalf("reserved %d tasks, %v", len(reply.Tasks), reply.Err)
				}
				for _, r := range reply.Tasks {
					number, version, policy := 0, "0.7", ""
					if stage.Takes(8, r.ID, want[r.ID]) {
						number, version, policy = 8, "0.8", "fail"
					}
					hash := w.rdb.HGetAll(w.ctx, w.Store().Keys.Task(r.ID)).Val()
					if r.Release != number || r.Instead != 0 || hash["version"] != version || hash["on_crash"] != policy || hash["pinned"] != "" {
						t.Errorf("%s runs on release %d, version %q: %v, want release %d", r.ID, r.Release, hash["version"], hash, number)
					}
					delete(want, r.ID)
				}
			}
		})
	}
}

// A host without the canary gives its tasks back for a second, without an attempt; after a minute it runs them.
func TestReserveWithoutCanary(t *testing.T) {
	w := setup(t)
	all := &release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 100}}}}
	w.at(0)
	node := w.node(t, "q")
	id := w.enqueue(t, "q", "x", queue.Options{})
	key := w.Store().Keys.Task(id)
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", all)})[0]
	if reply.Err != nil || len(reply.Tasks) != 0 || reply.Passed != 1 || !slices.Equal(reply.Lacking, []int{8}) {
		t.Fatalf("reserved %+v", reply)
	}
	if task := w.task(t, id); task.Status != queue.Scheduled || task.Attempts != 0 || task.Reschedules != 0 {
		t.Errorf("the task is %+v", task)
	}
	w.at(2)
	must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
	if reply = node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", all, canaryHere)})[0]; len(reply.Tasks) != 1 || reply.Tasks[0].Release != 8 || !reply.Tasks[0].Delayed {
		t.Fatalf("a host with the canary reserved %+v", reply)
	}
	if w.rdb.HExists(w.ctx, key, "aside").Val() {
		t.Error("the task still waits for its release")
	}
	if errs, err := node.Release(w.ctx, "q", []listen.Claim{reply.Tasks[0].Claim()}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	reply = node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", all)})[0]
	if len(reply.Tasks) != 0 {
		t.Fatalf("a host without the canary reserved %+v", reply)
	}
	w.at(63)
	must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
	reply = node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", all)})[0]
	if len(reply.Tasks) != 1 || reply.Tasks[0].Release != 0 || reply.Tasks[0].Instead != 8 || w.task(t, id).Version != "0.7" {
		t.Errorf("after a minute the host reserved %+v", reply)
	}
}

// A reserve that gives back many tasks ends early, and says so: tasks of the release that serves may be behind them.
func TestReserveBehindTasksOfCanary(t *testing.T) {
	w := setup(t)
	node := w.node(t, "q")
	stage := &release.Stage{Share: release.Share{Label: "customer", Value: "acme"}}
	for range 40 {
		w.enqueue(t, "q", "x", queue.Options{Labels: map[string]string{"customer": "acme"}})
	}
	id := w.enqueue(t, "q", "x", queue.Options{})
	given := 0
	for range 3 {
		reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", stage)})[0]
		given += reply.Passed
		if reply.Err != nil || reply.Early != (given < 40) || (len(reply.Tasks) == 1) != (given == 40) {
			t.Fatalf("after %d tasks were given back: %+v", given, reply)
		}
		if len(reply.Tasks) == 1 && reply.Tasks[0].ID != id {
			t.Errorf("reserved %+v", reply.Tasks)
		}
	}
	if reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", stage)})[0]; reply.Early || len(reply.Tasks) > 0 {
		t.Errorf("of an empty queue: %+v", reply)
	}
}

// Tasks of a canary whose version is quarantined wait as on a host without it; other tasks run.
func TestQuarantinedCanary(t *testing.T) {
	w := setup(t)
	half := &release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 50}}}}
	node := w.node(t, "q")
	if err := w.rdb.HSet(w.ctx, w.Store().Keys.Crashes(), "mail sha256:8", "9999999999.000000 a b c").Err(); err != nil {
		t.Fatal(err)
	}
	stable := 0
	for i := range 20 {
		if !half.Takes(8, w.enqueue(t, "q", "x", queue.Options{ID: fmt.Sprint("t", i)}), nil) {
			stable++
		}
	}
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", half, canaryHere)})[0]
	if len(reply.Tasks) != stable || slices.ContainsFunc(reply.Tasks, func(r listen.Reservation) bool { return r.Release != 0 }) {
		t.Errorf("reserved %d of %d tasks: %+v", len(reply.Tasks), stable, reply)
	}
}

// A pinned task keeps to its release, whatever the share of a canary; until that release is gone, or it is retried by
// hand.
func TestPinnedTask(t *testing.T) {
	w := setup(t)
	w.at(0)
	node := w.node(t, "q")
	id := w.enqueue(t, "q", "x", queue.Options{})
	key := w.Store().Keys.Task(id)
	request := func(serving int, others ...listen.OtherRelease) listen.ReserveRequest {
		return listen.ReserveRequest{
			Queue: "q", Count: 1, Start: true, Plugin: "mail", Digest: fmt.Sprint("sha256:", serving), Release: serving, Pin: true,
			Others: others,
		}
	}
	other := func(number int) listen.OtherRelease {
		return listen.OtherRelease{Number: number, Plugin: "mail", Digest: fmt.Sprint("sha256:", number), Pin: true}
	}
	run := func(r listen.ReserveRequest, want, instead int, pinned string) {
		t.Helper()
		reply := node.Reserve(w.ctx, []listen.ReserveRequest{r})[0]
		if reply.Err != nil || len(reply.Tasks) != 1 || reply.Tasks[0].Release != want || reply.Tasks[0].Instead != instead {
			t.Fatalf("reserved %+v", reply)
		}
		if is := w.rdb.HGet(w.ctx, key, "pinned").Val(); is != pinned {
			t.Errorf("the task is pinned to release %q, want %q", is, pinned)
		}
		s := listen.Settlement{Claim: reply.Tasks[0].Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}, Requeue: listen.RequeueRetry}
		if errs, err := node.Settle(w.ctx, "q", []listen.Settlement{s}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	run(request(7), 0, 0, "7")
	run(request(8, other(7)), 7, 0, "7")
	canary := request(8, other(7), other(9))
	canary.Canary = &listen.CanaryShare{Number: 9, Percent: 100}
	run(canary, 7, 0, "7")
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{request(8)})[0]
	if len(reply.Tasks) != 0 || !slices.Equal(reply.Lacking, []int{7}) {
		t.Errorf("a host without release 7 reserved %+v", reply)
	}
	w.at(2)
	must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
	run(request(8, listen.OtherRelease{Number: 7, Gone: true}), 0, 7, "8")
	run(request(8), 0, 0, "8")
	unpinned := request(9, listen.OtherRelease{Number: 8, Gone: true})
	unpinned.Pin = false
	run(unpinned, 0, 8, "")
	run(unpinned, 0, 0, "")
}

// A reserve whose answer was lost is adopted on the same releases.
func TestAdoptForCanary(t *testing.T) {
	w := setup(t)
	half := &release.Stage{Share: release.Share{Steps: []release.Step{{Percent: 50}}}}
	node := w.node(t, "q")
	for i := range 20 {
		w.enqueue(t, "q", "x", queue.Options{ID: fmt.Sprint("t", i)})
	}
	var ids []string
	for _, r := range node.Reserve(w.ctx, []listen.ReserveRequest{stagedRequest("q", half, canaryHere)})[0].Tasks {
		ids = append(ids, r.ID)
	}
	canaries, late := 0, ids[slices.IndexFunc(ids, func(id string) bool { return half.Takes(8, id, nil) })]
	if err := w.rdb.HSet(w.ctx, w.Store().Keys.Task(late), "aside", "9999999999").Err(); err != nil {
		t.Fatal(err)
	}
	reply := node.Adopt(w.ctx, stagedRequest("q", half, canaryHere), ids)
	for _, r := range reply.Tasks {
		if takes := half.Takes(8, r.ID, nil); takes != (r.Release == 8) || takes != (w.task(t, r.ID).Version == "0.8") {
			t.Errorf("%s was adopted for release %d as version %q", r.ID, r.Release, w.task(t, r.ID).Version)
		} else if takes {
			canaries++
		}
		if r.Delayed != (r.ID == late) {
			t.Errorf("%s was adopted as one that waited: %v", r.ID, r.Delayed)
		}
	}
	if reply.Err != nil || len(reply.Tasks) != 20 || canaries == 0 || canaries == 20 {
		t.Errorf("%d tasks were adopted, %d for the canary: %v", len(reply.Tasks), canaries, reply.Err)
	}
	reply = node.Adopt(w.ctx, stagedRequest("q", half), ids) // the canary has left the host meanwhile
	if reply.Err != nil || len(reply.Tasks) != 20-canaries || reply.Passed != canaries {
		t.Errorf("without the canary, %d tasks were adopted and %d given back: %v", len(reply.Tasks), reply.Passed, reply.Err)
	}
	started := w.rdb.SMembers(w.ctx, w.Store().Keys.Started("q")).Val()
	if len(started) != 20-canaries || strings.Contains(fmt.Sprint(started), "{") {
		t.Errorf("%d tasks count as started", len(started))
	}
}
