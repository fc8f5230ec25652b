package host

import (
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

const publishingManifest = `
retry: {max_attempts: 1}
capabilities:
  publish: {topics: [orders, "bills.*"]%s}
`

func publishing(t testing.TB, more string) *node {
	t.Helper()
	n := start(t, settings{
		guests: map[string][]byte{"breeding": breeding(t)}, yaml: map[string]string{"breeding": fmt.Sprintf(publishingManifest, more)},
	})
	for _, id := range []string{"a", "b"} {
		if _, err := n.client.Subscribe(n.ctx, queue.Subscription{ID: id, Topic: "orders", Queue: "born"}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// What a handler publishes has its subscribers' tasks soon after the handler completes, and none if it fails.
func TestPublishFromAHandler(t *testing.T) {
	t.Parallel()
	n := publishing(t, "")
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	parent := n.wait(n.enqueueAs("breeding", `c1 {"topic":"orders","id":"made","attributes":{"type":"order.made"}}`, queue.Options{Traceparent: trace}))
	if string(parent.Result) != "made" {
		t.Fatalf("%q: %+v", parent.Result, parent.Failure())
	}
	n.count("born", queue.Pending, 2)
	child := n.task(queue.PublishedID("made", "a"))
	if child.Parent != parent.ID || child.Depth != 1 || child.Traceparent != trace || child.Headers["ce-type"] != "order.made" ||
		string(child.Parameters) != string(parent.Parameters) {
		t.Errorf("%+v", child)
	}
	for _, end := range []string{"f", "t"} {
		n.wait(n.enqueue("breeding", end+`1 {"topic":"orders"}`))
	}
	for input, answer := range map[string]string{
		`c1 {"topic":"secrets"}`:                  "-03",
		`c1 {"topic":"orders","key":"k"}`:         "-01",
		`c1queue {"topic":"orders"}`:              "-01",
		`c1 {"topic":"orders*"}`:                  "-01",
		`c1 {"topic":""}`:                         "-01",
		`c1 {"topic":"orders","attributes":[]}`:   "-01",
		`c1queue {}`:                              "-03", // enqueue is not granted
		`c* {"topic":"orders","attributes":null}`: "-11",
	} {
		if task := n.wait(n.enqueue("breeding", input)); string(task.Result) != answer {
			t.Errorf("%s: %q, want %s: %+v", input, task.Result, answer, task.Failure())
		}
	}
	n.count("born", queue.Pending, 2+2*256) // those of the last one
	n.wait(n.enqueue("breeding", `c1 {"topic":"bills.eu","id":"nobody"}`))
	n.eventually("it is dropped", func() bool {
		p, err := n.client.Publication(n.ctx, "nobody")
		return err == nil && p.State == queue.PublicationDropped
	})
}

// By after: call it is published at once.
func TestPublishAtOnce(t *testing.T) {
	t.Parallel()
	n := publishing(t, ", after: call")
	n.wait(n.enqueue("breeding", `t1 {"topic":"orders","id":"made"}`))
	n.count("born", queue.Pending, 2)
	if task := n.wait(n.enqueue("breeding", `c1 {"topic":"orders","id":"made"}`)); string(task.Result) != "made" {
		t.Errorf("%q: %+v", task.Result, task.Failure())
	}
	n.count("born", queue.Pending, 2)
	if err := n.client.Queue("born").SetLimit(n.ctx, 3); err != nil {
		t.Fatal(err)
	}
	for input, answer := range map[string]string{`c1 {"topic":"orders"}`: "-06", `c1 {"topic":"bills.eu","id":"made"}`: "-01"} {
		if task := n.wait(n.enqueue("breeding", input)); string(task.Result) != answer {
			t.Errorf("%s: %q: %+v", input, task.Result, task.Failure())
		}
	}
}

// A host goes on with what a dead publisher left.
func TestPublicationOfADeadPublisher(t *testing.T) {
	t.Parallel()
	n := publishing(t, "")
	// As a settle leaves it whose host died at once.
	node := listen.New(n.client)
	if err := node.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.enqueue("work", "")
	batch := node.Reserve(n.ctx, []listen.ReserveRequest{{Queue: "work", Count: 1, Start: true, Plugin: "p", Digest: "d"}})[0]
	if batch.Err != nil || len(batch.Tasks) != 1 {
		t.Fatal(batch)
	}
	settlement := listen.Settlement{Claim: batch.Tasks[0].Claim(), Publications: []*queue.Publication{{ID: "left", Topic: "orders"}}}
	if errs, err := node.Settle(n.ctx, "work", []listen.Settlement{settlement}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	n.eventually("its tasks", func() bool {
		p, err := n.client.Publication(n.ctx, "left")
		return err == nil && p.State == queue.PublicationDone
	})
	n.count("born", queue.Pending, 2)
}
