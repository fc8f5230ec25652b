package queue

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func (w *world) subscribe(t testing.TB, s Subscription) Subscription {
	t.Helper()
	return must[Subscription](t)(w.Subscribe(w.ctx, s))
}

func (w *world) publish(t testing.TB, topic, payload string, o PublishOptions) Published {
	t.Helper()
	return must[Published](t)(w.Publish(w.ctx, topic, []byte(payload), o))
}

// published lists the queue of each subscription's task.
func (w *world) published(t testing.TB, id string) map[string]string {
	t.Helper()
	queues := make(map[string]string)
	for _, task := range must[[]PublishedTask](t)(w.PublicationTasks(w.ctx, id, 0, maxPage)) {
		queues[task.Subscription] = task.Queue
	}
	return queues
}

// A client that read the subscriptions before Redis lost them does not publish to the old ones, however often they are made anew.
func TestPublishAfterALoss(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "old", Topic: "orders", Queue: "old"})
		w.publish(t, "orders", "", PublishOptions{ID: "before"})
		if err := w.rdb.Del(w.ctx, w.store.keys.subscriptions(), w.store.keys.generation()).Err(); err != nil {
			t.Fatal(err)
		}
		other := must[*Client](t)(NewFromRedis(w.rdb, w.config))
		must[Subscription](t)(other.Subscribe(w.ctx, Subscription{ID: "new", Topic: "orders", Queue: "new"}))
		w.publish(t, "orders", "", PublishOptions{ID: "after"})
		if got := w.published(t, "after"); !maps.Equal(got, map[string]string{"new": "new"}) {
			t.Errorf("%v", got)
		}
	})
}

// Tasks that wait for others count for a queue's limit, as for producers.
func TestPublishBesideBlockedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := must[string](t)(w.Queue("other").Enqueue(w.ctx, nil, Options{}))
		must[string](t)(w.Queue("q").Enqueue(w.ctx, nil, Options{After: []string{first}}))
		if err := w.Queue("q").SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.subscribe(t, Subscription{ID: "s", Topic: "orders", Queue: "q"})
		if _, err := w.Publish(w.ctx, "orders", nil, PublishOptions{}); !errors.Is(err, ErrQueueFull) {
			t.Errorf("published: %v", err)
		}
		w.at(0)
		w.put(t, Schedule{ID: "s", Queue: "q", Cron: "@hourly"})
		if end := w.tick(t, "s", 60); end != TickEarly {
			t.Errorf("%s", end)
		}
		w.at(60)
		if end := w.tick(t, "s", 60); end != TickFull || w.schedule(t, "s").Waits.Unix() != 1700000060 {
			t.Errorf("%s, %+v", end, w.schedule(t, "s").ScheduleState)
		}
	})
}

// Each subscriber that matches gets one task with its own policy; publishing the same ID again does nothing.
func TestPublish(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		high := 80
		w.subscribe(t, Subscription{ID: "index", Topic: "orders", Queue: "index", Retry: Retry{MaxAttempts: 7, Base: time.Minute, Backoff: Linear}, Dead: "index.dead", Priority: &high, Timeout: time.Minute})
		w.subscribe(t, Subscription{ID: "mail", Topic: "orders", Queue: "mail", Filter: Filter{Attributes: map[string]string{"tenant": "acme"}}})
		w.subscribe(t, Subscription{ID: "all", Topic: "*", Queue: "mail"})
		w.subscribe(t, Subscription{ID: "big", Topic: "orders", Queue: "big", Filter: Filter{Data: map[string]any{"/total": 1000}}})
		w.subscribe(t, Subscription{ID: "hook", Topic: "ord*", Webhook: &Webhook{URL: "https://example.com/hook"}})
		w.subscribe(t, Subscription{ID: "paused", Topic: "orders", Queue: "mail"})
		must[Subscription](t)(w.ChangeSubscription(w.ctx, "paused", func(s *Subscription) error { s.Active = false; return nil }))
		w.subscribe(t, Subscription{ID: "other", Topic: "bills", Queue: "mail"})

		const payload = `{"total": 12}`
		options := PublishOptions{ID: "one", Attributes: map[string]string{"tenant": "acme", "type": "order.made"}, Parent: "above", Depth: 2}
		for try := range 2 {
			got := w.publish(t, "orders", payload, options)
			if got != (Published{ID: "one", Existed: try > 0, Subscribers: 4}) {
				t.Fatalf("%+v", got)
			}
		}
		want := map[string]string{"index": "index", "mail": "mail", "all": "mail", "hook": "webhook.hook"}
		if got := w.published(t, "one"); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		task := w.task(t, PublishedID("one", "index"))
		if string(task.Parameters) != payload || task.Status != Pending || task.MaxAttempts != 7 || task.Retry.Base != time.Minute ||
			task.Priority != 80 || task.Timeout != time.Minute || task.Parent != "above" || task.Depth != 2 {
			t.Errorf("%+v", task)
		}
		headers := map[string]string{
			HeaderTopic: "orders", HeaderPublication: "one", HeaderSubscription: "index", "ce-tenant": "acme", "ce-type": "order.made",
			HeaderSubscribed: seconds(must[Subscription](t)(w.Subscription(w.ctx, "index")).CreatedAt), // which has no webhook
		}
		if !maps.Equal(task.Headers, headers) {
			t.Errorf("headers %v", task.Headers)
		}
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		for range 2 {
			w.reserve(t, node, "mail", true)
		}
		p := must[*Publication](t)(w.Publication(w.ctx, "one"))
		if p.State != PublicationDone || string(p.Payload) != payload || p.Subscribers != 4 || p.Tasks != 4 || p.Attributes["tenant"] != "acme" || p.Created.IsZero() {
			t.Errorf("%+v", p)
		}
		for name, other := range map[string]struct {
			payload    string
			attributes map[string]string
			taken      bool
		}{
			"the same":         {payload, options.Attributes, false},
			"other payload":    {payload + " ", options.Attributes, true},
			"no payload":       {"", options.Attributes, true},
			"other attributes": {payload, map[string]string{"type": "order.made"}, true},
			"no attributes":    {payload, nil, true},
		} {
			got := w.publish(t, "orders", other.payload, PublishOptions{ID: "one", Attributes: other.attributes})
			if got != (Published{ID: "one", Existed: true, Taken: other.taken, Subscribers: 4}) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if _, err := w.Publish(w.ctx, "bills", nil, PublishOptions{ID: "one"}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), `"orders"`) {
			t.Error(err)
		}

		if got := w.publish(t, "nobody.reads", "", PublishOptions{ID: "two"}); got.Subscribers != 1 { // all
			t.Errorf("%+v", got)
		}
		if err := w.Unsubscribe(w.ctx, "all"); err != nil {
			t.Fatal(err)
		}
		if got := w.publish(t, "nobody.reads", "", PublishOptions{ID: "three"}); got.Subscribers != 0 {
			t.Errorf("%+v", got)
		}
		if p := must[*Publication](t)(w.Publication(w.ctx, "three")); p.State != PublicationDropped {
			t.Errorf("%+v", p)
		}
		topics := must[[]Topic](t)(w.Topics(w.ctx))
		for i := range topics {
			topics[i].Last = time.Time{}
		}
		if want := []Topic{
			{Name: "nobody.reads", Published: 2, Dropped: 1, Tasks: 1, Kept: 2},
			{Name: "orders", Published: 1, Tasks: 4, Kept: 1, Subscriptions: 5, Active: 4},
			{Name: "bills", Subscriptions: 1, Active: 1},
		}; !slices.Equal(topics, want) {
			t.Errorf("topics\n%+v, want\n%+v", topics, want)
		}
		if left := must[[]string](t)(w.Fleet().Unpublished(w.ctx)); len(left) > 0 {
			t.Errorf("under way: %v", left)
		}
	})
}

// A payload that is no text arrives as it was, and is sent once for all subscribers.
func TestPublishBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		payload := bytes.Repeat([]byte{0, 0xff, 'a'}, 1000)
		for _, id := range []string{"a", "b"} {
			w.subscribe(t, Subscription{ID: id, Topic: "photos", Queue: "q"})
		}
		p := must[Published](t)(w.Publish(w.ctx, "photos", payload, PublishOptions{}))
		for _, id := range []string{"a", "b"} {
			if task := w.task(t, PublishedID(p.ID, id)); !bytes.Equal(task.Parameters, payload) {
				t.Errorf("%s: %.40q", id, task.Parameters)
			}
		}
		if kept := must[*Publication](t)(w.Publication(w.ctx, p.ID)); !bytes.Equal(kept.Payload, payload) {
			t.Errorf("%.40q", kept.Payload)
		}
	})
}

// A client that knows older subscriptions publishes to the present ones.
func TestPublishAfterAChange(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		other := must[*Client](t)(NewFromRedis(w.rdb, Config{Tenant: w.Tenant()}))
		defer other.Close()
		w.publish(t, "orders", "", PublishOptions{})
		for i := range 3 {
			must[Subscription](t)(other.Subscribe(w.ctx, Subscription{ID: fmt.Sprint(i), Topic: "orders", Queue: "q"}))
			if got := w.publish(t, "orders", "", PublishOptions{}); got.Subscribers != i+1 {
				t.Errorf("%d subscribers, want %d", got.Subscribers, i+1)
			}
		}
		if err := other.Unsubscribe(w.ctx, "1"); err != nil {
			t.Fatal(err)
		}
		if got := w.publish(t, "orders", "", PublishOptions{}); got.Subscribers != 2 {
			t.Errorf("%d subscribers", got.Subscribers)
		}
	})
}

// What cannot be published as a whole is not published at all.
func TestPublishNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "a", Topic: "orders", Queue: "a"})
		w.subscribe(t, Subscription{ID: "b", Topic: "orders", Queue: "b"})
		refused := func(want error) {
			t.Helper()
			if _, err := w.Publish(w.ctx, "orders", nil, PublishOptions{ID: "x"}); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if _, err := w.Publication(w.ctx, "x"); !errors.Is(err, ErrNoPublication) {
				t.Errorf("it is kept: %v", err)
			}
			if _, err := w.Task(w.ctx, PublishedID("x", "a")); !errors.Is(err, ErrNoTask) {
				t.Errorf("a task: %v", err)
			}
		}
		if err := w.Queue("b").SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "b", "", Options{})
		refused(ErrQueueFull)
		if err := w.Queue("b").SetLimit(w.ctx, 0); err != nil {
			t.Fatal(err)
		}
		w.rdb.Set(w.ctx, w.store.keys.scheduled("b"), "x", 0)
		refused(ErrDamaged)
		w.rdb.Del(w.ctx, w.store.keys.scheduled("b"))
		w.rdb.Set(w.ctx, w.store.keys.publishing(), "x", 0)
		refused(ErrDamaged)
		w.rdb.Del(w.ctx, w.store.keys.publishing())
		if got := w.publish(t, "orders", "", PublishOptions{ID: "x"}); got.Existed || got.Subscribers != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// A publication of many subscribers, whose publisher dies between two blocks, is finished once by whoever goes on, also if a
// subscription is deleted and a queue damaged meanwhile.
func TestPublishInBlocks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		count := 2500
		payload := bytes.Repeat([]byte("x"), 100)
		if embedded(t) {
			count, payload = 30, make([]byte, publishBytes/10)
		}
		for i := range count {
			w.subscribe(t, Subscription{ID: fmt.Sprintf("s%04d", i), Topic: "orders", Queue: fmt.Sprint("q", i%7)})
		}
		p := &Publication{ID: "many", Topic: "orders", Payload: payload}
		first := must[publishAnswer](t)(w.publishBlock(w.ctx, p))
		if first.subscribers != count || first.turns >= count || first.turns == 0 {
			t.Fatalf("%+v", first)
		}
		kept := must[*Publication](t)(w.Publication(w.ctx, "many"))
		if kept.State != PublicationUnfinished || kept.Tasks != first.turns {
			t.Fatalf("%+v", kept.State)
		}
		last := fmt.Sprintf("s%04d", count-1)
		if err := w.Unsubscribe(w.ctx, last); err != nil {
			t.Fatal(err)
		}
		w.rdb.Del(w.ctx, w.store.keys.expiry("q3"))
		w.rdb.Set(w.ctx, w.store.keys.expiry("q3"), "x", 0)
		w.store.clock = seconds(must[time.Time](t)(w.Clock(w.ctx)).Add(time.Minute))
		if ids := must[[]string](t)(w.Fleet().Unpublished(w.ctx)); !slices.Equal(ids, []string{"many"}) {
			t.Fatalf("%v", ids)
		}
		errs := make(chan error, 3)
		for range 3 { // hosts
			go func() { errs <- w.Republish(w.ctx, "many") }()
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got := must[Published](t)(w.Publish(w.ctx, "orders", payload, PublishOptions{ID: "many"})); !got.Existed || got.Subscribers != count {
			t.Errorf("%+v", got)
		}
		kept = must[*Publication](t)(w.Publication(w.ctx, "many"))
		if kept.State != PublicationDone || kept.Tasks+kept.Refused != count || kept.Refused < 2 {
			t.Errorf("%s, %d tasks, %d refused", kept.State, kept.Tasks, kept.Refused)
		}
		var tasks, waiting int
		for from := 0; from < count; from += maxPage {
			for _, task := range must[[]PublishedTask](t)(w.PublicationTasks(w.ctx, "many", int64(from), maxPage)) {
				if (task.Queue != "") == (task.Subscription == last) && task.Subscription == last {
					t.Errorf("%+v of a deleted subscription", task)
				}
				if task.Queue != "" {
					tasks++
				}
			}
		}
		for i := range 7 {
			waiting += int(must[int64](t)(w.rdb.LLen(w.ctx, w.store.keys.pending(fmt.Sprint("q", i))).Result()))
		}
		if tasks != waiting || tasks != kept.Tasks {
			t.Errorf("%d tasks exist, %d wait, and the publication says %d", tasks, waiting, kept.Tasks)
		}
		if left := must[[]string](t)(w.Fleet().Unpublished(w.ctx)); len(left) > 0 {
			t.Errorf("under way: %v", left)
		}
	})
}

// What a task publishes is accepted with its completion, once, and nothing of it if it fails or is lost.
func TestPublishWithCompletion(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "s", Topic: "orders", Queue: "orders"})
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		settle := func(s Settlement) error {
			return errors.Join(must[[]error](t)(node.Settle(w.ctx, "work", []Settlement{s}))...)
		}
		w.enqueue(t, "work", "", Options{})
		held := w.reserve(t, node, "work", true)
		claim := held.Claim()
		publications := []*Publication{
			{ID: "p1", Topic: "orders", Payload: []byte{0xff}, Attributes: map[string]string{"type": "made"}, Parent: claim.ID, Depth: 1},
			{ID: "p2", Topic: "bills"},
		}
		children := []Child{{Queue: "child", Spec: Spec{Options: Options{ID: "c"}}}}
		w.rdb.Set(w.ctx, w.store.keys.publications("bills"), "x", 0)
		if err := settle(Settlement{Claim: claim, Children: children, Publications: publications}); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if _, err := w.Publication(w.ctx, "p1"); !errors.Is(err, ErrNoPublication) {
			t.Fatal(err)
		}
		w.rdb.Del(w.ctx, w.store.keys.publications("bills"))
		for range 2 { // the answer was lost
			if err := settle(Settlement{Claim: claim, Children: children, Publications: publications}); err != nil {
				t.Fatal(err)
			}
		}
		if w.task(t, "c").Status != Pending {
			t.Error("no child")
		}
		if p := must[*Publication](t)(w.Publication(w.ctx, "p1")); p.State != PublicationAccepted {
			t.Errorf("%+v", p)
		}
		w.store.clock = seconds(must[time.Time](t)(w.Clock(w.ctx)).Add(time.Minute))
		ids := must[[]string](t)(w.Fleet().Unpublished(w.ctx))
		if slices.Sort(ids); !slices.Equal(ids, []string{"p1", "p2"}) {
			t.Fatalf("%v", ids)
		}
		if got := w.publish(t, "orders", "x", PublishOptions{ID: "p1"}); !got.Existed || got.Subscribers != 1 { // goes on
			t.Errorf("%+v", got)
		}
		for _, id := range ids {
			if err := w.Republish(w.ctx, id); err != nil {
				t.Error(err)
			}
		}
		task := w.task(t, PublishedID("p1", "s"))
		if string(task.Parameters) != "\xff" || task.Parent != claim.ID || task.Depth != 1 || task.Headers["ce-type"] != "made" {
			t.Errorf("%+v", task)
		}
		if p := must[*Publication](t)(w.Publication(w.ctx, "p2")); p.State != PublicationDropped {
			t.Errorf("%+v", p)
		}
	})
}

func (w *world) purgePublications(o PurgeOptions) (total int, err error) {
	for n, failed := range w.PurgePublications(w.ctx, o) {
		total, err = total+n, errors.Join(err, failed)
	}
	return total, err
}

// Publications under way at the old end, and damaged topics, keep no others from being forgotten.
func TestPurgePastWhatStays(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 2*purgeTasks + 10 {
			id := fmt.Sprintf("p%03d", i)
			w.publish(t, "orders", "", PublishOptions{ID: id})
			if i < purgeTasks+5 {
				w.rdb.ZAdd(w.ctx, w.store.keys.publishing(), redis.Z{Score: 1, Member: id})
			}
		}
		w.publish(t, "bills", "", PublishOptions{})
		w.rdb.ZAdd(w.ctx, w.store.keys.topics(), redis.Z{Score: 1, Member: "damaged"})
		w.rdb.Set(w.ctx, w.store.keys.publications("damaged"), "of another type", 0)
		n, err := w.purgePublications(PurgeOptions{Everything: true})
		if n != purgeTasks+6 || err == nil || !strings.Contains(err.Error(), `"damaged"`) {
			t.Errorf("purged %d, %v", n, err)
		}
		if left := w.rdb.ZCard(w.ctx, w.store.keys.publications("orders")).Val(); left != purgeTasks+5 {
			t.Errorf("%d stay", left)
		}
	})
}

// Publications that cannot be published do not stay before the others.
func TestPostponeUnpublished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range MaxUnpublished + 1 {
			w.rdb.ZAdd(w.ctx, w.store.keys.publishing(), redis.Z{Score: float64(i), Member: fmt.Sprint("p", i)})
		}
		first := must[[]string](t)(w.Fleet().Unpublished(w.ctx))
		if err := w.Fleet().PostponeUnpublished(w.ctx, append(first, "gone")); len(first) != MaxUnpublished || err != nil {
			t.Fatalf("%d, %v", len(first), err)
		}
		if next := must[[]string](t)(w.Fleet().Unpublished(w.ctx)); !slices.Equal(next, []string{fmt.Sprint("p", MaxUnpublished)}) {
			t.Errorf("%q", next)
		}
	})
}

// Old publications are forgotten with their counts when none is left; those under way stay, and so do tasks.
func TestPurgePublications(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "s", Topic: "orders", Queue: "q"})
		now := must[time.Time](t)(w.Clock(w.ctx))
		for i := range 5 {
			w.store.clock = seconds(now.Add(time.Duration(i) * time.Hour))
			w.publish(t, "orders", "", PublishOptions{ID: fmt.Sprint("p", i)})
		}
		w.rdb.ZAdd(w.ctx, w.store.keys.publishing(), redis.Z{Score: 1, Member: "p1"})
		purge := func(o PurgeOptions, want int, stay ...string) {
			t.Helper()
			if got := must[int](t)(w.purgePublications(o)); got != want {
				t.Errorf("purged %d, want %d", got, want)
			}
			var ids []string
			for _, p := range must[[]*Publication](t)(w.Publications(w.ctx, "orders", 0, 10)) {
				ids = append(ids, p.ID)
			}
			if !slices.Equal(ids, stay) {
				t.Errorf("%v stay, want %v", ids, stay)
			}
		}
		purge(PurgeOptions{OlderThan: 150 * time.Minute}, 1, "p4", "p3", "p2", "p1")
		purge(PurgeOptions{Keep: 2}, 1, "p4", "p3", "p1")
		w.rdb.Del(w.ctx, w.store.keys.publishing())
		since := must[[]redis.Z](t)(w.publicationsSince(w.ctx, &Subscription{Topic: "ord*"}, now.Add(90*time.Minute), 10))
		if len(since) != 2 || since[0].Member != "p3" || since[1].Member != "p4" {
			t.Errorf("since: %v", since)
		}
		purge(PurgeOptions{Everything: true}, 3)
		if _, err := w.Publication(w.ctx, "p4"); !errors.Is(err, ErrNoPublication) {
			t.Error(err)
		}
		if topic := must[Topic](t)(w.Topic(w.ctx, "orders")); topic != (Topic{Name: "orders", Subscriptions: 1, Active: 1}) {
			t.Errorf("%+v", topic)
		}
		if _, err := w.Topic(w.ctx, "bills"); !errors.Is(err, ErrNoTopic) {
			t.Error(err)
		}
		for i := range 5 {
			w.task(t, PublishedID(fmt.Sprint("p", i), "s"))
		}
	})
}

// A subscriber's task that fails for good has its dead letter in the subscription's queue, whatever its plugin says, also after
// another run; that of another subscriber is not touched.
func TestDeadSubscriber(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "bad", Topic: "orders", Queue: "bad", Dead: "bad.dead"})
		w.subscribe(t, Subscription{ID: "good", Topic: "orders", Queue: "good"})
		p := w.publish(t, "orders", "payload", PublishOptions{})
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		for _, requeue := range []Requeue{RequeueRetry, ""} {
			held := w.reserve(t, node, "bad", true)
			must[[]error](t)(node.Settle(w.ctx, "bad", []Settlement{{Claim: held.Claim(), Failure: &Failure{Message: "no"}, Requeue: requeue}}))
		}
		letter := w.reserve(t, node, "bad.dead", true)
		if string(letter.Parameters) != "payload" {
			t.Errorf("%q", letter.Parameters)
		}
		if task := w.task(t, PublishedID(p.ID, "bad")); task.Status != Failed || task.DeadID != letter.ID || task.Attempts != 2 {
			t.Errorf("%+v", task)
		}
		if task := w.task(t, PublishedID(p.ID, "good")); task.Status != Pending {
			t.Errorf("%+v", task)
		}
		w.subscribe(t, Subscription{ID: "picky", Topic: "orders", Queue: "good", Filter: Filter{Attributes: map[string]string{"type": "x"}}})
		if none := must[Replayed](t)(w.Replay(w.ctx, "picky", time.Unix(1, 0), false)); none.Publications != 0 || none.Tasks != nil {
			t.Errorf("%+v", none)
		}
		if dry := must[Replayed](t)(w.Replay(w.ctx, "good", time.Unix(1, 0), true)); dry.Publications != 1 || dry.Tasks != nil {
			t.Errorf("%+v", dry)
		}
		again := must[Replayed](t)(w.Replay(w.ctx, "good", time.Unix(1, 0), false))
		if len(again.Tasks) != 1 {
			t.Fatalf("%+v", again)
		}
		if task := w.task(t, again.Tasks[0]); string(task.Parameters) != "payload" || task.Queue != "good" || task.Headers[HeaderPublication] != p.ID {
			t.Errorf("%+v", task)
		}
		second := w.publish(t, "orders", "payload", PublishOptions{})
		part := must[Replayed](t)(w.replay(w.ctx, "good", time.Unix(1, 0), false, 0)) // its time is over at once
		if created := must[*Publication](t)(w.Publication(w.ctx, second.ID)).Created; len(part.Tasks) != 1 || !part.Until.Equal(created) {
			t.Errorf("%+v, not until %s", part, created)
		}
		if rest := must[Replayed](t)(w.Replay(w.ctx, "good", part.Until, false)); len(rest.Tasks) != 1 || !rest.Until.IsZero() {
			t.Errorf("%+v", rest)
		}
		// Also what was published at one time is delivered once.
		w.enqueue(t, "work", "", Options{})
		held := w.reserve(t, node, "work", true)
		must[[]error](t)(node.Settle(w.ctx, "work", []Settlement{{Claim: held.Claim(), Publications: []*Publication{{ID: "one", Topic: "orders"}, {ID: "two", Topic: "orders"}}}}))
		part = must[Replayed](t)(w.replay(w.ctx, "good", must[*Publication](t)(w.Publication(w.ctx, "one")).Created, false, 0))
		if rest := must[Replayed](t)(w.Replay(w.ctx, "good", part.Until, false)); len(part.Tasks) != 1 || len(rest.Tasks) != 1 {
			t.Errorf("%+v, then %+v", part, rest)
		}
	})
}

// Subscriptions are written only over what was read, and no more than a tenant may have.
func TestSubscriptions(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s := w.subscribe(t, Subscription{ID: "a", Topic: "orders", Queue: "q"})
		if !s.Active || s.CreatedAt.IsZero() {
			t.Errorf("%+v", s)
		}
		if _, err := w.Subscribe(w.ctx, Subscription{ID: "a", Topic: "bills", Queue: "q"}); !errors.Is(err, ErrExists) {
			t.Error(err)
		}
		changes := 0
		changed := must[Subscription](t)(w.ChangeSubscription(w.ctx, "a", func(s *Subscription) error {
			if changes++; changes == 1 { // another one comes first
				must[Subscription](t)(w.ChangeSubscription(w.ctx, "a", func(s *Subscription) error { s.Dead = "dead"; return nil }))
			}
			s.Active, s.Reason, s.ID = false, "410 Gone", "b"
			return nil
		}))
		if changed.ID != "a" || changed.Dead != "dead" || changed.Active || changes != 2 || !changed.CreatedAt.Equal(s.CreatedAt) {
			t.Errorf("%+v after %d", changed, changes)
		}
		all := must[[]Subscription](t)(w.Subscriptions(w.ctx))
		if len(all) != 1 || all[0].Reason != "410 Gone" {
			t.Errorf("%+v", all)
		}
		if _, err := w.ChangeSubscription(w.ctx, "a", func(s *Subscription) error { s.Queue = ""; return nil }); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		// A webhook gets no headers of a trace; one that was stored with them can be paused.
		traced := Webhook{URL: "https://example.com", Headers: map[string]string{"Traceparent": "00-1"}}
		if _, err := w.Subscribe(w.ctx, Subscription{ID: "t", Topic: "bills", Webhook: &traced}); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		w.subscribe(t, Subscription{ID: "t", Topic: "bills", Webhook: &Webhook{URL: "https://example.com"}})
		if _, err := w.ChangeSubscription(w.ctx, "t", func(s *Subscription) error { s.Webhook.Headers = traced.Headers; return nil }); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		w.rdb.HSet(w.ctx, w.store.keys.subscriptions(), "t", `{"id":"t","topic":"bills","active":true,"webhook":{"url":"https://example.com","headers":{"Traceparent":"00-1"}}}`)
		if paused, err := w.ChangeSubscription(w.ctx, "t", func(s *Subscription) error { s.Active = false; return nil }); err != nil || paused.Active {
			t.Errorf("%+v, %v", paused, err)
		}
		if err := w.Unsubscribe(w.ctx, "t"); err != nil {
			t.Error(err)
		}
		for _, missing := range []error{
			w.Unsubscribe(w.ctx, "z"),
			second(w.Subscription(w.ctx, "z")), second(w.ChangeSubscription(w.ctx, "z", nil)), second(w.Replay(w.ctx, "z", time.Unix(1, 0), false)),
		} {
			if !errors.Is(missing, ErrNoSubscription) {
				t.Error(missing)
			}
		}
		w.rdb.HSet(w.ctx, w.store.keys.subscriptions(), "damaged", "{", "wrong", `{"id":"other","topic":"t","queue":"q","active":true}`)
		w.rdb.Set(w.ctx, w.store.keys.generation(), "by hand", 0)
		if all, err := w.Subscriptions(w.ctx); len(all) != 1 || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%v, %v", all, err)
		}
		if err := w.Unsubscribe(w.ctx, "damaged"); err != nil {
			t.Error(err)
		}
		if got := must[Published](t)(w.Publish(w.ctx, "orders", nil, PublishOptions{})); got.Damaged != 1 || got.Subscribers != 0 { // "wrong" gets nothing, which is said
			t.Errorf("%+v", got)
		}
		answer := must[any](t)(w.store.eval(w.ctx, newCall("subscribe", w.store.keys.subscriptions(), "z", "", "text", 2)))
		if answer != "full" {
			t.Errorf("%v", answer)
		}
		w.rdb.Set(w.ctx, w.store.keys.generation(), "damaged", 0)
		w.subscribe(t, Subscription{ID: "c", Topic: "orders", Queue: "q"})
		w.publish(t, "orders", "", PublishOptions{})
	})
}

// A webhook gets no port that no server can have; one that was stored with it can be paused.
func TestPortOfWebhook(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for port, right := range map[string]bool{"": true, ":": true, ":1": true, ":65535": true, ":0": false, ":65536": false, ":99999": false, ":99999999999999999999": false} {
			_, err := w.Subscribe(w.ctx, Subscription{ID: "s", Topic: "orders", Webhook: &Webhook{URL: "http://127.0.0.1" + port + "/"}})
			if (err == nil) != right || !right && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "use a port from 1 to 65535")) {
				t.Errorf("port %q: %v", port, err)
			}
			if err == nil {
				if err := w.Unsubscribe(w.ctx, "s"); err != nil {
					t.Error(err)
				}
			}
		}
		w.rdb.HSet(w.ctx, w.store.keys.subscriptions(), "s", `{"id":"s","topic":"orders","active":true,"webhook":{"url":"http://127.0.0.1:99999/"}}`)
		if paused, err := w.ChangeSubscription(w.ctx, "s", func(s *Subscription) error { s.Active = false; return nil }); err != nil || paused.Active {
			t.Errorf("%+v, %v", paused, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// At maxmemory nothing is half published, and deleting goes on.
func TestPublishWhenFull(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "a", Topic: "orders", Queue: "a"})
		w.publish(t, "orders", "", PublishOptions{ID: "before"})
		w.rdb.ConfigSet(w.ctx, "maxmemory", "1")
		if _, err := w.Publish(w.ctx, "orders", nil, PublishOptions{ID: "x"}); !IsUnavailable(err) {
			t.Error(err)
		}
		if n := must[int](t)(w.purgePublications(PurgeOptions{Everything: true})); n != 1 {
			t.Errorf("purged %d", n)
		}
		if err := w.Unsubscribe(w.ctx, "a"); err != nil {
			t.Error(err)
		}
		w.rdb.ConfigSet(w.ctx, "maxmemory", "0")
		for _, key := range []string{w.store.keys.publication("x"), w.store.keys.task(PublishedID("x", "a")), w.store.keys.topics()} {
			if n := w.rdb.Exists(w.ctx, key).Val(); n != 0 {
				t.Errorf("%s exists", key)
			}
		}
	})
}

// Nobody who publishes waits for what somebody else reads.
func TestPublishWhileSubscriptionsAreRead(t *testing.T) {
	w := setup(t)
	w.subscribe(t, Subscription{ID: "a", Topic: "orders", Queue: "q"})
	w.publish(t, "orders", "", PublishOptions{})
	generation := w.rdb.Get(w.ctx, w.store.keys.generation()).Val()
	reads, release := make(chan bool, 1), make(chan bool)
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
		if cmds[0].Name() == "hgetall" {
			reads <- true
			<-release
		}
	}))
	w.rdb.Set(w.ctx, w.store.keys.generation(), "another", 0)
	read, published := make(chan error, 1), make(chan error, 1)
	go func() { read <- second(w.Subscriptions(w.ctx)) }()
	receive(t, "the read", reads)
	w.rdb.Set(w.ctx, w.store.keys.generation(), generation, 0)
	go func() { published <- second(w.Publish(w.ctx, "orders", nil, PublishOptions{})) }()
	select {
	case err := <-published:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it waits")
	}
	close(release)
	must[any](t)(nil, receive(t, "the end of the read", read))
}

// Many publishers and changes of subscriptions at a time: each publication has a task for exactly its subscribers.
func TestPublishWhileSubscriptionsChange(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, Subscription{ID: "always", Topic: "orders", Queue: "q"})
		changes, ended := make(chan bool, publishTries/2-2), make(chan struct{}) // fewer than a publication gives up after
		go func() {
			defer close(ended)
			for range changes {
				_, _ = w.Subscribe(w.ctx, Subscription{ID: "often", Topic: "orders", Queue: "q"})
				_ = w.Unsubscribe(w.ctx, "often")
			}
		}()
		stop := sync.OnceFunc(func() {
			close(changes)
			<-ended
		})
		defer stop()
		total := 0
		for range 50 {
			for len(changes) < cap(changes) {
				changes <- true
			}
			p := w.publish(t, "orders", "", PublishOptions{})
			got := w.published(t, p.ID)
			if _, ok := got["always"]; !ok || len(got) != p.Subscribers {
				t.Fatalf("%v of %+v", got, p)
			}
			total += len(got)
		}
		stop()
		if n := must[int64](t)(w.rdb.LLen(w.ctx, w.store.keys.pending("q")).Result()); int(n) != total {
			t.Errorf("%d tasks, want %d", n, total)
		}
	})
}

// A client that has read as many bytes of subscriptions as a tenant may have makes one when others have deleted some.
func TestSubscribeAfterOthersUnsubscribed(t *testing.T) {
	w := setup(t)
	for i := range maxSubscriptions >> 20 {
		text := fmt.Sprintf(`{"id":"s%d","topic":"t","queue":"q","active":true%s}`, i, strings.Repeat(" ", 1<<20))
		if err := w.rdb.HSet(w.ctx, w.store.keys.subscriptions(), fmt.Sprintf("s%d", i), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := Subscription{ID: "one", Topic: "t", Queue: "q"}
	if _, err := w.Subscribe(w.ctx, one); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "delete some") {
		t.Fatal(err)
	}
	other := must[*Client](t)(NewFromRedis(w.rdb, w.config))
	defer other.Close()
	for _, id := range []string{"s0", "s1"} {
		if err := other.Unsubscribe(w.ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Subscribe(w.ctx, one); err != nil {
		t.Error(err)
	}
}
