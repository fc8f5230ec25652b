package queue_test

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

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func (w *world) subscribe(t testing.TB, s queue.Subscription) queue.Subscription {
	t.Helper()
	return must[queue.Subscription](t)(w.Subscribe(w.ctx, s))
}

func (w *world) publish(t testing.TB, topic, payload string, o queue.PublishOptions) queue.Published {
	t.Helper()
	return must[queue.Published](t)(w.Publish(w.ctx, topic, []byte(payload), o))
}

// published lists the queue of each subscription's task.
func (w *world) published(t testing.TB, id string) map[string]string {
	t.Helper()
	queues := make(map[string]string)
	for _, task := range must[[]manage.PublishedTask](t)(manage.New(w.Client).PublicationTasks(w.ctx, id, 0, store.MaxPage)) {
		queues[task.Subscription] = task.Queue
	}
	return queues
}

// A client that read the subscriptions before Redis lost them does not publish to the old ones, however often they are made anew.
func TestPublishAfterALoss(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "old", Topic: "orders", Queue: "old"})
		w.publish(t, "orders", "", queue.PublishOptions{ID: "before"})
		if err := w.rdb.Del(w.ctx, w.Store().Keys.Subscriptions(), w.Store().Keys.Generation()).Err(); err != nil {
			t.Fatal(err)
		}
		other := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, *w.Config()))
		must[queue.Subscription](t)(other.Subscribe(w.ctx, queue.Subscription{ID: "new", Topic: "orders", Queue: "new"}))
		w.publish(t, "orders", "", queue.PublishOptions{ID: "after"})
		if got := w.published(t, "after"); !maps.Equal(got, map[string]string{"new": "new"}) {
			t.Errorf("%v", got)
		}
	})
}

// Tasks that wait for others count for a queue's limit, as for producers.
func TestPublishBesideBlockedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := must[string](t)(w.Queue("other").Enqueue(w.ctx, nil, queue.Options{}))
		must[string](t)(w.Queue("q").Enqueue(w.ctx, nil, queue.Options{After: []string{first}}))
		if err := w.Queue("q").SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"})
		if _, err := w.Publish(w.ctx, "orders", nil, queue.PublishOptions{}); !errors.Is(err, queue.ErrQueueFull) {
			t.Errorf("published: %v", err)
		}
		w.at(0)
		w.put(t, queue.Schedule{ID: "s", Queue: "q", Cron: "@hourly"})
		if end := w.tick(t, "s", 60); end != listen.TickEarly {
			t.Errorf("%s", end)
		}
		w.at(60)
		if end := w.tick(t, "s", 60); end != listen.TickFull || w.schedule(t, "s").Waits.Unix() != 1700000060 {
			t.Errorf("%s, %+v", end, w.schedule(t, "s").ScheduleState)
		}
	})
}

// A subscription's keys are those of its tasks; a key can stand for an attribute of the publication.
func TestKeysOfASubscription(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{
			ID: "s", Topic: "orders", Queue: "q", FairKey: "ada", FairWeight: 3,
			ConcurrencyKey: "attributes.customer", MaxConcurrent: 2,
		})
		long := strings.Repeat("x", 257)
		for id, want := range map[string]string{"bert": "2 bert", "": "0 ", long: "2 0796067748b6b0c2af864656a399f7722ef9283a"} {
			attributes := map[string]string{"customer": id}
			if id == "" {
				attributes = nil
			}
			p := w.publish(t, "orders", "", queue.PublishOptions{Attributes: attributes})
			task := w.task(t, queue.PublishedID(p.ID, "s"))
			if got := fmt.Sprint(task.MaxConcurrent, " ", task.ConcurrencyKey); got != want || task.FairKey != "ada" || task.FairWeight != 3 {
				t.Errorf("customer %.10q: %q, %q of weight %d", id, got, task.FairKey, task.FairWeight)
			}
		}
		plain := queue.Subscription{ID: "s", Topic: "orders", Queue: "q"}
		keyed := plain
		keyed.FairKey = "ada"
		if plain.Definition() == keyed.Definition() {
			t.Error("a key does not change the definition")
		}
		for _, wrong := range []queue.Subscription{
			{ID: "t", Topic: "orders", Queue: "q", FairWeight: 2},
			{ID: "t", Topic: "orders", Queue: "q", ConcurrencyKey: long},
		} {
			if _, err := w.Subscribe(w.ctx, wrong); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
	})
}

// Each subscriber that matches gets one task with its own policy; publishing the same ID again does nothing.
func TestPublish(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		high := 80
		w.subscribe(t, queue.Subscription{ID: "index", Topic: "orders", Queue: "index", Retry: queue.Retry{MaxAttempts: 7, Base: time.Minute, Backoff: queue.Linear}, Dead: "index.dead", Priority: &high, Timeout: time.Minute})
		w.subscribe(t, queue.Subscription{ID: "mail", Topic: "orders", Queue: "mail", Filter: queue.Filter{Attributes: map[string]string{"tenant": "acme"}}})
		w.subscribe(t, queue.Subscription{ID: "all", Topic: "*", Queue: "mail"})
		w.subscribe(t, queue.Subscription{ID: "big", Topic: "orders", Queue: "big", Filter: queue.Filter{Data: map[string]any{"/total": 1000}}})
		w.subscribe(t, queue.Subscription{ID: "hook", Topic: "ord*", Webhook: &queue.Webhook{URL: "https://example.com/hook"}})
		w.subscribe(t, queue.Subscription{ID: "paused", Topic: "orders", Queue: "mail"})
		must[queue.Subscription](t)(w.ChangeSubscription(w.ctx, "paused", func(s *queue.Subscription) error { s.Active = false; return nil }))
		w.subscribe(t, queue.Subscription{ID: "other", Topic: "bills", Queue: "mail"})

		const payload = `{"total": 12}`
		options := queue.PublishOptions{ID: "one", Attributes: map[string]string{"tenant": "acme", "type": "order.made"}, Parent: "above", Depth: 2}
		for try := range 2 {
			got := w.publish(t, "orders", payload, options)
			if got != (queue.Published{ID: "one", Existed: try > 0, Subscribers: 4}) {
				t.Fatalf("%+v", got)
			}
		}
		want := map[string]string{"index": "index", "mail": "mail", "all": "mail", "hook": "webhook.hook"}
		if got := w.published(t, "one"); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		task := w.task(t, queue.PublishedID("one", "index"))
		if string(task.Parameters) != payload || task.Status != queue.Pending || task.MaxAttempts != 7 || task.Retry.Base != time.Minute ||
			task.Priority != 80 || task.Timeout != time.Minute || task.Parent != "above" || task.Depth != 2 {
			t.Errorf("%+v", task)
		}
		headers := map[string]string{
			queue.HeaderTopic: "orders", queue.HeaderPublication: "one", queue.HeaderSubscription: "index", "ce-tenant": "acme", "ce-type": "order.made",
			queue.HeaderSubscribed: store.Seconds(must[queue.Subscription](t)(w.Subscription(w.ctx, "index")).CreatedAt), // which has no webhook
		}
		if !maps.Equal(task.Headers, headers) {
			t.Errorf("headers %v", task.Headers)
		}
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		for range 2 {
			w.reserve(t, node, "mail", true)
		}
		p := must[*queue.Publication](t)(w.Publication(w.ctx, "one"))
		if p.State != queue.PublicationDone || string(p.Payload) != payload || p.Subscribers != 4 || p.Tasks != 4 || p.Attributes["tenant"] != "acme" || p.Created.IsZero() {
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
			got := w.publish(t, "orders", other.payload, queue.PublishOptions{ID: "one", Attributes: other.attributes})
			if got != (queue.Published{ID: "one", Existed: true, Taken: other.taken, Subscribers: 4}) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if _, err := w.Publish(w.ctx, "bills", nil, queue.PublishOptions{ID: "one"}); !errors.Is(err, queue.ErrExists) || !strings.Contains(err.Error(), `"orders"`) {
			t.Error(err)
		}

		if got := w.publish(t, "nobody.reads", "", queue.PublishOptions{ID: "two"}); got.Subscribers != 1 { // all
			t.Errorf("%+v", got)
		}
		if err := w.Unsubscribe(w.ctx, "all"); err != nil {
			t.Fatal(err)
		}
		if got := w.publish(t, "nobody.reads", "", queue.PublishOptions{ID: "three"}); got.Subscribers != 0 {
			t.Errorf("%+v", got)
		}
		if p := must[*queue.Publication](t)(w.Publication(w.ctx, "three")); p.State != queue.PublicationDropped {
			t.Errorf("%+v", p)
		}
		topics := must[[]manage.Topic](t)(manage.New(w.Client).Topics(w.ctx))
		for i := range topics {
			topics[i].Last = time.Time{}
		}
		if want := []manage.Topic{
			{TopicCounts: listen.TopicCounts{Name: "nobody.reads", Published: 2, Dropped: 1, Tasks: 1, Kept: 2}},
			{TopicCounts: listen.TopicCounts{Name: "orders", Published: 1, Tasks: 4, Kept: 1}, Subscriptions: 5, Active: 4},
			{TopicCounts: listen.TopicCounts{Name: "bills"}, Subscriptions: 1, Active: 1},
		}; !slices.Equal(topics, want) {
			t.Errorf("topics\n%+v, want\n%+v", topics, want)
		}
		if left := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx)); len(left) > 0 {
			t.Errorf("under way: %v", left)
		}
	})
}

// A payload that is no text arrives as it was, and is sent once for all subscribers.
func TestPublishBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		payload := bytes.Repeat([]byte{0, 0xff, 'a'}, 1000)
		for _, id := range []string{"a", "b"} {
			w.subscribe(t, queue.Subscription{ID: id, Topic: "photos", Queue: "q"})
		}
		p := must[queue.Published](t)(w.Publish(w.ctx, "photos", payload, queue.PublishOptions{}))
		for _, id := range []string{"a", "b"} {
			if task := w.task(t, queue.PublishedID(p.ID, id)); !bytes.Equal(task.Parameters, payload) {
				t.Errorf("%s: %.40q", id, task.Parameters)
			}
		}
		if kept := must[*queue.Publication](t)(w.Publication(w.ctx, p.ID)); !bytes.Equal(kept.Payload, payload) {
			t.Errorf("%.40q", kept.Payload)
		}
	})
}

// A client that knows older subscriptions publishes to the present ones.
func TestPublishAfterAChange(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		other := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: w.Tenant()}))
		defer other.Close()
		w.publish(t, "orders", "", queue.PublishOptions{})
		for i := range 3 {
			must[queue.Subscription](t)(other.Subscribe(w.ctx, queue.Subscription{ID: fmt.Sprint(i), Topic: "orders", Queue: "q"}))
			if got := w.publish(t, "orders", "", queue.PublishOptions{}); got.Subscribers != i+1 {
				t.Errorf("%d subscribers, want %d", got.Subscribers, i+1)
			}
		}
		if err := other.Unsubscribe(w.ctx, "1"); err != nil {
			t.Fatal(err)
		}
		if got := w.publish(t, "orders", "", queue.PublishOptions{}); got.Subscribers != 2 {
			t.Errorf("%d subscribers", got.Subscribers)
		}
	})
}

// What cannot be published as a whole is not published at all.
func TestPublishNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "a", Topic: "orders", Queue: "a"})
		w.subscribe(t, queue.Subscription{ID: "b", Topic: "orders", Queue: "b"})
		refused := func(want error) {
			t.Helper()
			if _, err := w.Publish(w.ctx, "orders", nil, queue.PublishOptions{ID: "x"}); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if _, err := w.Publication(w.ctx, "x"); !errors.Is(err, queue.ErrNoPublication) {
				t.Errorf("it is kept: %v", err)
			}
			if _, err := w.Task(w.ctx, queue.PublishedID("x", "a")); !errors.Is(err, queue.ErrNoTask) {
				t.Errorf("a task: %v", err)
			}
		}
		if err := w.Queue("b").SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "b", "", queue.Options{})
		refused(queue.ErrQueueFull)
		if err := w.Queue("b").SetLimit(w.ctx, 0); err != nil {
			t.Fatal(err)
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Scheduled("b"), "x", 0)
		refused(queue.ErrDamaged)
		w.rdb.Del(w.ctx, w.Store().Keys.Scheduled("b"))
		w.rdb.Set(w.ctx, w.Store().Keys.Publishing(), "x", 0)
		refused(queue.ErrDamaged)
		w.rdb.Del(w.ctx, w.Store().Keys.Publishing())
		if got := w.publish(t, "orders", "", queue.PublishOptions{ID: "x"}); got.Existed || got.Subscribers != 2 {
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
			count, payload = 30, make([]byte, queue.PublishBytes/10)
		}
		for i := range count {
			w.subscribe(t, queue.Subscription{ID: fmt.Sprintf("s%04d", i), Topic: "orders", Queue: fmt.Sprint("q", i%7)})
		}
		p := &queue.Publication{ID: "many", Topic: "orders", Payload: payload}
		first := must[queue.PublishAnswer](t)(w.PublishBlock(w.ctx, p))
		if first.Subscribers != count || first.Turns >= count || first.Turns == 0 {
			t.Fatalf("%+v", first)
		}
		kept := must[*queue.Publication](t)(w.Publication(w.ctx, "many"))
		if kept.State != queue.PublicationUnfinished || kept.Tasks != first.Turns {
			t.Fatalf("%+v", kept.State)
		}
		last := fmt.Sprintf("s%04d", count-1)
		if err := w.Unsubscribe(w.ctx, last); err != nil {
			t.Fatal(err)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Expiry("q3"))
		w.rdb.Set(w.ctx, w.Store().Keys.Expiry("q3"), "x", 0)
		w.Store().Clock = store.Seconds(must[time.Time](t)(w.Clock(w.ctx)).Add(time.Minute))
		if ids := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx)); !slices.Equal(ids, []string{"many"}) {
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
		if got := must[queue.Published](t)(w.Publish(w.ctx, "orders", payload, queue.PublishOptions{ID: "many"})); !got.Existed || got.Subscribers != count {
			t.Errorf("%+v", got)
		}
		kept = must[*queue.Publication](t)(w.Publication(w.ctx, "many"))
		if kept.State != queue.PublicationDone || kept.Tasks+kept.Refused != count || kept.Refused < 2 {
			t.Errorf("%s, %d tasks, %d refused", kept.State, kept.Tasks, kept.Refused)
		}
		var tasks, waiting int
		for from := 0; from < count; from += store.MaxPage {
			for _, task := range must[[]manage.PublishedTask](t)(manage.New(w.Client).PublicationTasks(w.ctx, "many", int64(from), store.MaxPage)) {
				if (task.Queue != "") == (task.Subscription == last) && task.Subscription == last {
					t.Errorf("%+v of a deleted subscription", task)
				}
				if task.Queue != "" {
					tasks++
				}
			}
		}
		for i := range 7 {
			waiting += int(must[int64](t)(w.rdb.LLen(w.ctx, w.Store().Keys.Pending(fmt.Sprint("q", i))).Result()))
		}
		if tasks != waiting || tasks != kept.Tasks {
			t.Errorf("%d tasks exist, %d wait, and the publication says %d", tasks, waiting, kept.Tasks)
		}
		if left := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx)); len(left) > 0 {
			t.Errorf("under way: %v", left)
		}
	})
}

// What a task publishes is accepted with its completion, once, and nothing of it if it fails or is lost.
func TestPublishWithCompletion(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "orders", Queue: "orders"})
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		settle := func(s listen.Settlement) error {
			return errors.Join(must[[]error](t)(node.Settle(w.ctx, "work", []listen.Settlement{s}))...)
		}
		w.enqueue(t, "work", "", queue.Options{})
		held := w.reserve(t, node, "work", true)
		claim := held.Claim()
		publications := []*queue.Publication{
			{ID: "p1", Topic: "orders", Payload: []byte{0xff}, Attributes: map[string]string{"type": "made"}, Parent: claim.ID, Depth: 1},
			{ID: "p2", Topic: "bills"},
		}
		children := []listen.Child{{Queue: "child", Spec: queue.Spec{Options: queue.Options{ID: "c"}}}}
		w.rdb.Set(w.ctx, w.Store().Keys.Publications("bills"), "x", 0)
		if err := settle(listen.Settlement{Claim: claim, Children: children, Publications: publications}); !errors.Is(err, queue.ErrDamaged) {
			t.Fatal(err)
		}
		if _, err := w.Publication(w.ctx, "p1"); !errors.Is(err, queue.ErrNoPublication) {
			t.Fatal(err)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Publications("bills"))
		for range 2 { // the answer was lost
			if err := settle(listen.Settlement{Claim: claim, Children: children, Publications: publications}); err != nil {
				t.Fatal(err)
			}
		}
		if w.task(t, "c").Status != queue.Pending {
			t.Error("no child")
		}
		if p := must[*queue.Publication](t)(w.Publication(w.ctx, "p1")); p.State != queue.PublicationAccepted {
			t.Errorf("%+v", p)
		}
		w.Store().Clock = store.Seconds(must[time.Time](t)(w.Clock(w.ctx)).Add(time.Minute))
		ids := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx))
		if slices.Sort(ids); !slices.Equal(ids, []string{"p1", "p2"}) {
			t.Fatalf("%v", ids)
		}
		if got := w.publish(t, "orders", "x", queue.PublishOptions{ID: "p1"}); !got.Existed || got.Subscribers != 1 { // goes on
			t.Errorf("%+v", got)
		}
		for _, id := range ids {
			if err := w.Republish(w.ctx, id); err != nil {
				t.Error(err)
			}
		}
		task := w.task(t, queue.PublishedID("p1", "s"))
		if string(task.Parameters) != "\xff" || task.Parent != claim.ID || task.Depth != 1 || task.Headers["ce-type"] != "made" {
			t.Errorf("%+v", task)
		}
		if p := must[*queue.Publication](t)(w.Publication(w.ctx, "p2")); p.State != queue.PublicationDropped {
			t.Errorf("%+v", p)
		}
	})
}

func (w *world) purgePublications(o listen.PurgeOptions) (total int, err error) {
	for n, failed := range listen.NewFleet(w.Client).PurgePublications(w.ctx, o) {
		total, err = total+n, errors.Join(err, failed)
	}
	return total, err
}

// Publications under way at the old end, and damaged topics, keep no others from being forgotten.
func TestPurgePastWhatStays(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 2*store.PurgeTasks + 10 {
			id := fmt.Sprintf("p%03d", i)
			w.publish(t, "orders", "", queue.PublishOptions{ID: id})
			if i < store.PurgeTasks+5 {
				w.rdb.ZAdd(w.ctx, w.Store().Keys.Publishing(), redis.Z{Score: 1, Member: id})
			}
		}
		w.publish(t, "bills", "", queue.PublishOptions{})
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Topics(), redis.Z{Score: 1, Member: "damaged"})
		w.rdb.Set(w.ctx, w.Store().Keys.Publications("damaged"), "of another type", 0)
		n, err := w.purgePublications(listen.PurgeOptions{Everything: true})
		if n != store.PurgeTasks+6 || err == nil || !strings.Contains(err.Error(), `"damaged"`) {
			t.Errorf("purged %d, %v", n, err)
		}
		if left := w.rdb.ZCard(w.ctx, w.Store().Keys.Publications("orders")).Val(); left != store.PurgeTasks+5 {
			t.Errorf("%d stay", left)
		}
	})
}

// Publications that cannot be published do not stay before the others.
func TestPostponeUnpublished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range listen.MaxUnpublished + 1 {
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Publishing(), redis.Z{Score: float64(i), Member: fmt.Sprint("p", i)})
		}
		first := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx))
		if err := listen.NewFleet(w.Client).PostponeUnpublished(w.ctx, append(first, "gone")); len(first) != listen.MaxUnpublished || err != nil {
			t.Fatalf("%d, %v", len(first), err)
		}
		if next := must[[]string](t)(listen.NewFleet(w.Client).Unpublished(w.ctx)); !slices.Equal(next, []string{fmt.Sprint("p", listen.MaxUnpublished)}) {
			t.Errorf("%q", next)
		}
	})
}

// Old publications are forgotten with their counts when none is left; those under way stay, and so do tasks.
func TestPurgePublications(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"})
		now := must[time.Time](t)(w.Clock(w.ctx))
		for i := range 5 {
			w.Store().Clock = store.Seconds(now.Add(time.Duration(i) * time.Hour))
			w.publish(t, "orders", "", queue.PublishOptions{ID: fmt.Sprint("p", i)})
		}
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Publishing(), redis.Z{Score: 1, Member: "p1"})
		purge := func(o listen.PurgeOptions, want int, stay ...string) {
			t.Helper()
			if got := must[int](t)(w.purgePublications(o)); got != want {
				t.Errorf("purged %d, want %d", got, want)
			}
			var ids []string
			for _, p := range must[[]*queue.Publication](t)(manage.New(w.Client).Publications(w.ctx, "orders", 0, 10)) {
				ids = append(ids, p.ID)
			}
			if !slices.Equal(ids, stay) {
				t.Errorf("%v stay, want %v", ids, stay)
			}
		}
		purge(listen.PurgeOptions{OlderThan: 150 * time.Minute}, 1, "p4", "p3", "p2", "p1")
		purge(listen.PurgeOptions{Keep: 2}, 1, "p4", "p3", "p1")
		w.rdb.Del(w.ctx, w.Store().Keys.Publishing())
		w.subscribe(t, queue.Subscription{ID: "late", Topic: "ord*", Queue: "q"})
		if again := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "late", now.Add(90*time.Minute), true)); again.Publications != 2 {
			t.Errorf("since: %+v", again)
		}
		if err := w.Unsubscribe(w.ctx, "late"); err != nil {
			t.Fatal(err)
		}
		purge(listen.PurgeOptions{Everything: true}, 3)
		if _, err := w.Publication(w.ctx, "p4"); !errors.Is(err, queue.ErrNoPublication) {
			t.Error(err)
		}
		if topic := must[manage.Topic](t)(manage.New(w.Client).Topic(w.ctx, "orders")); topic != (manage.Topic{TopicCounts: listen.TopicCounts{Name: "orders"}, Subscriptions: 1, Active: 1}) {
			t.Errorf("%+v", topic)
		}
		if _, err := manage.New(w.Client).Topic(w.ctx, "bills"); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
		for i := range 5 {
			w.task(t, queue.PublishedID(fmt.Sprint("p", i), "s"))
		}
	})
}

// A subscriber's task that fails for good has its dead letter in the subscription's queue, whatever its plugin says, also after
// another run; that of another subscriber is not touched.
func TestDeadSubscriber(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "bad", Topic: "orders", Queue: "bad", Dead: "bad.dead"})
		w.subscribe(t, queue.Subscription{ID: "good", Topic: "orders", Queue: "good"})
		p := w.publish(t, "orders", "payload", queue.PublishOptions{})
		node := w.node(t, "work", "bad", "bad.dead", "mail")
		for _, requeue := range []listen.Requeue{listen.RequeueRetry, ""} {
			held := w.reserve(t, node, "bad", true)
			must[[]error](t)(node.Settle(w.ctx, "bad", []listen.Settlement{{Claim: held.Claim(), Failure: &queue.Failure{Message: "no"}, Requeue: requeue}}))
		}
		letter := w.reserve(t, node, "bad.dead", true)
		if string(letter.Parameters) != "payload" {
			t.Errorf("%q", letter.Parameters)
		}
		if task := w.task(t, queue.PublishedID(p.ID, "bad")); task.Status != queue.Failed || task.DeadID != letter.ID || task.Attempts != 2 {
			t.Errorf("%+v", task)
		}
		if task := w.task(t, queue.PublishedID(p.ID, "good")); task.Status != queue.Pending {
			t.Errorf("%+v", task)
		}
		w.subscribe(t, queue.Subscription{ID: "picky", Topic: "orders", Queue: "good", Filter: queue.Filter{Attributes: map[string]string{"type": "x"}}})
		if none := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "picky", time.Unix(1, 0), false)); none.Publications != 0 || none.Tasks != nil {
			t.Errorf("%+v", none)
		}
		if dry := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "good", time.Unix(1, 0), true)); dry.Publications != 1 || dry.Tasks != nil {
			t.Errorf("%+v", dry)
		}
		again := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "good", time.Unix(1, 0), false))
		if len(again.Tasks) != 1 {
			t.Fatalf("%+v", again)
		}
		if task := w.task(t, again.Tasks[0]); string(task.Parameters) != "payload" || task.Queue != "good" || task.Headers[queue.HeaderPublication] != p.ID {
			t.Errorf("%+v", task)
		}
		second := w.publish(t, "orders", "payload", queue.PublishOptions{})
		part := must[manage.Replayed](t)(manage.New(w.Client).ReplayWithin(w.ctx, "good", time.Unix(1, 0), false, 0)) // its time is over at once
		if created := must[*queue.Publication](t)(w.Publication(w.ctx, second.ID)).Created; len(part.Tasks) != 1 || !part.Until.Equal(created) {
			t.Errorf("%+v, not until %s", part, created)
		}
		if rest := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "good", part.Until, false)); len(rest.Tasks) != 1 || !rest.Until.IsZero() {
			t.Errorf("%+v", rest)
		}
		// Also what was published at one time is delivered once.
		w.enqueue(t, "work", "", queue.Options{})
		held := w.reserve(t, node, "work", true)
		must[[]error](t)(node.Settle(w.ctx, "work", []listen.Settlement{{Claim: held.Claim(), Publications: []*queue.Publication{{ID: "one", Topic: "orders"}, {ID: "two", Topic: "orders"}}}}))
		part = must[manage.Replayed](t)(manage.New(w.Client).ReplayWithin(w.ctx, "good", must[*queue.Publication](t)(w.Publication(w.ctx, "one")).Created, false, 0))
		if rest := must[manage.Replayed](t)(manage.New(w.Client).Replay(w.ctx, "good", part.Until, false)); len(part.Tasks) != 1 || len(rest.Tasks) != 1 {
			t.Errorf("%+v, then %+v", part, rest)
		}
	})
}

// Subscriptions are written only over what was read, and no more than a tenant may have.
func TestSubscriptions(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s := w.subscribe(t, queue.Subscription{ID: "a", Topic: "orders", Queue: "q"})
		if !s.Active || s.CreatedAt.IsZero() {
			t.Errorf("%+v", s)
		}
		if _, err := w.Subscribe(w.ctx, queue.Subscription{ID: "a", Topic: "bills", Queue: "q"}); !errors.Is(err, queue.ErrExists) {
			t.Error(err)
		}
		changes := 0
		changed := must[queue.Subscription](t)(w.ChangeSubscription(w.ctx, "a", func(s *queue.Subscription) error {
			if changes++; changes == 1 { // another one comes first
				must[queue.Subscription](t)(w.ChangeSubscription(w.ctx, "a", func(s *queue.Subscription) error { s.Dead = "dead"; return nil }))
			}
			s.Active, s.Reason, s.ID = false, "410 Gone", "b"
			return nil
		}))
		if changed.ID != "a" || changed.Dead != "dead" || changed.Active || changes != 2 || !changed.CreatedAt.Equal(s.CreatedAt) {
			t.Errorf("%+v after %d", changed, changes)
		}
		all := must[[]queue.Subscription](t)(w.Subscriptions(w.ctx))
		if len(all) != 1 || all[0].Reason != "410 Gone" {
			t.Errorf("%+v", all)
		}
		if _, err := w.ChangeSubscription(w.ctx, "a", func(s *queue.Subscription) error { s.Queue = ""; return nil }); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
		// A webhook gets no headers of a trace; one that was stored with them can be paused.
		traced := queue.Webhook{URL: "https://example.com", Headers: map[string]string{"Traceparent": "00-1"}}
		if _, err := w.Subscribe(w.ctx, queue.Subscription{ID: "t", Topic: "bills", Webhook: &traced}); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
		w.subscribe(t, queue.Subscription{ID: "t", Topic: "bills", Webhook: &queue.Webhook{URL: "https://example.com"}})
		if _, err := w.ChangeSubscription(w.ctx, "t", func(s *queue.Subscription) error { s.Webhook.Headers = traced.Headers; return nil }); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Subscriptions(), "t", `{"id":"t","topic":"bills","active":true,"webhook":{"url":"https://example.com","headers":{"Traceparent":"00-1"}}}`)
		if paused, err := w.ChangeSubscription(w.ctx, "t", func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil || paused.Active {
			t.Errorf("%+v, %v", paused, err)
		}
		if err := w.Unsubscribe(w.ctx, "t"); err != nil {
			t.Error(err)
		}
		for _, missing := range []error{
			w.Unsubscribe(w.ctx, "z"),
			second(w.Subscription(w.ctx, "z")), second(w.ChangeSubscription(w.ctx, "z", nil)), second(manage.New(w.Client).Replay(w.ctx, "z", time.Unix(1, 0), false)),
		} {
			if !errors.Is(missing, queue.ErrNoSubscription) {
				t.Error(missing)
			}
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Subscriptions(), "damaged", "{", "wrong", `{"id":"other","topic":"t","queue":"q","active":true}`)
		w.rdb.Set(w.ctx, w.Store().Keys.Generation(), "by hand", 0)
		if all, err := w.Subscriptions(w.ctx); len(all) != 1 || !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%v, %v", all, err)
		}
		if err := w.Unsubscribe(w.ctx, "damaged"); err != nil {
			t.Error(err)
		}
		if got := must[queue.Published](t)(w.Publish(w.ctx, "orders", nil, queue.PublishOptions{})); got.Damaged != 1 || got.Subscribers != 0 { // "wrong" gets nothing, which is said
			t.Errorf("%+v", got)
		}
		answer := must[any](t)(w.Store().Eval(w.ctx, store.NewCall("subscribe", w.Store().Keys.Subscriptions(), "z", "", "text", 2)))
		if answer != "full" {
			t.Errorf("%v", answer)
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Generation(), "damaged", 0)
		w.subscribe(t, queue.Subscription{ID: "c", Topic: "orders", Queue: "q"})
		w.publish(t, "orders", "", queue.PublishOptions{})
	})
}

// A webhook gets no port that no server can have; one that was stored with it can be paused.
func TestPortOfWebhook(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for port, right := range map[string]bool{"": true, ":": true, ":1": true, ":65535": true, ":0": false, ":65536": false, ":99999": false, ":99999999999999999999": false} {
			_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Webhook: &queue.Webhook{URL: "http://127.0.0.1" + port + "/"}})
			if (err == nil) != right || !right && (!errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "use a port from 1 to 65535")) {
				t.Errorf("port %q: %v", port, err)
			}
			if err == nil {
				if err := w.Unsubscribe(w.ctx, "s"); err != nil {
					t.Error(err)
				}
			}
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Subscriptions(), "s", `{"id":"s","topic":"orders","active":true,"webhook":{"url":"http://127.0.0.1:99999/"}}`)
		if paused, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil || paused.Active {
			t.Errorf("%+v, %v", paused, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// At maxmemory nothing is half published, and deleting goes on.
func TestPublishWhenFull(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		w.subscribe(t, queue.Subscription{ID: "a", Topic: "orders", Queue: "a"})
		w.publish(t, "orders", "", queue.PublishOptions{ID: "before"})
		w.rdb.ConfigSet(w.ctx, "maxmemory", "1")
		if _, err := w.Publish(w.ctx, "orders", nil, queue.PublishOptions{ID: "x"}); !queue.IsUnavailable(err) {
			t.Error(err)
		}
		if n := must[int](t)(w.purgePublications(listen.PurgeOptions{Everything: true})); n != 1 {
			t.Errorf("purged %d", n)
		}
		if err := w.Unsubscribe(w.ctx, "a"); err != nil {
			t.Error(err)
		}
		w.rdb.ConfigSet(w.ctx, "maxmemory", "0")
		for _, key := range []string{w.Store().Keys.Publication("x"), w.Store().Keys.Task(queue.PublishedID("x", "a")), w.Store().Keys.Topics()} {
			if n := w.rdb.Exists(w.ctx, key).Val(); n != 0 {
				t.Errorf("%s exists", key)
			}
		}
	})
}

// Nobody who publishes waits for what somebody else reads.
func TestPublishWhileSubscriptionsAreRead(t *testing.T) {
	w := setup(t)
	w.subscribe(t, queue.Subscription{ID: "a", Topic: "orders", Queue: "q"})
	w.publish(t, "orders", "", queue.PublishOptions{})
	generation := w.rdb.Get(w.ctx, w.Store().Keys.Generation()).Val()
	reads, release := make(chan bool, 1), make(chan bool)
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
		if cmds[0].Name() == "hgetall" {
			reads <- true
			<-release
		}
	}))
	w.rdb.Set(w.ctx, w.Store().Keys.Generation(), "another", 0)
	read, published := make(chan error, 1), make(chan error, 1)
	go func() { read <- second(w.Subscriptions(w.ctx)) }()
	receive(t, "the read", reads)
	w.rdb.Set(w.ctx, w.Store().Keys.Generation(), generation, 0)
	go func() { published <- second(w.Publish(w.ctx, "orders", nil, queue.PublishOptions{})) }()
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
		w.subscribe(t, queue.Subscription{ID: "always", Topic: "orders", Queue: "q"})
		changes, ended := make(chan bool, queue.PublishTries/2-2), make(chan struct{}) // fewer than a publication gives up after
		go func() {
			defer close(ended)
			for range changes {
				_, _ = w.Subscribe(w.ctx, queue.Subscription{ID: "often", Topic: "orders", Queue: "q"})
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
			p := w.publish(t, "orders", "", queue.PublishOptions{})
			got := w.published(t, p.ID)
			if _, ok := got["always"]; !ok || len(got) != p.Subscribers {
				t.Fatalf("%v of %+v", got, p)
			}
			total += len(got)
		}
		stop()
		if n := must[int64](t)(w.rdb.LLen(w.ctx, w.Store().Keys.Pending("q")).Result()); int(n) != total {
			t.Errorf("%d tasks, want %d", n, total)
		}
	})
}

// A client that has read as many bytes of subscriptions as a tenant may have makes one when others have deleted some.
func TestSubscribeAfterOthersUnsubscribed(t *testing.T) {
	w := setup(t)
	for i := range queue.MaxSubscriptionsBytes >> 20 {
		text := fmt.Sprintf(`{"id":"s%d","topic":"t","queue":"q","active":true%s}`, i, strings.Repeat(" ", 1<<20))
		if err := w.rdb.HSet(w.ctx, w.Store().Keys.Subscriptions(), fmt.Sprintf("s%d", i), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := queue.Subscription{ID: "one", Topic: "t", Queue: "q"}
	if _, err := w.Subscribe(w.ctx, one); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "delete some") {
		t.Fatal(err)
	}
	other := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, *w.Config()))
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
