package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// modelTopics is what a model has of two topics, their subscriptions and publications.
type modelTopics struct {
	active             map[string]bool // whether the subscriptions are that there are, by ID
	publications       map[string]*modelPublication
	published, dropped map[string]int // by topic, of all since it is there
	others             []string       // the tasks in the queue other, which nobody serves, oldest first
	hook               modelHook      // the webhook e as it is, if it is active has it
	deliveries         map[string]modelHook
}

// modelHook is the webhook e as it was when something was published to it: the time at which it was made, and its URL.
type modelHook struct {
	made int
	url  string
}

type modelPublication struct {
	*queue.Publication
	at          int
	accepted    bool // and no more: its subscribers are not chosen
	subscribers []string
}

func newModelTopics() modelTopics {
	return modelTopics{
		active: make(map[string]bool), publications: make(map[string]*modelPublication), published: make(map[string]int), dropped: make(map[string]int),
		deliveries: make(map[string]modelHook),
	}
}

const modelPublications = 6 // so that an ID comes again

// modelSubscriptions are those that there may be. wants says the same in other words.
var modelSubscriptions = map[string]queue.Subscription{
	"a": {Topic: "t", Queue: "q"},
	"b": {Topic: "*", Queue: "q", Filter: queue.Filter{Attributes: map[string]string{"kind": "x*"}}},
	"c": {Topic: "u", Queue: "other"},
	"d": {Topic: "t*", Queue: "other", Filter: queue.Filter{Data: map[string]any{"/n": 1}}},
	"e": {Topic: "t"}, // a webhook
}

func (p *modelPublication) wants(subscription string) bool {
	switch subscription {
	case "a":
		return p.Topic == "t"
	case "b":
		return p.Attributes["kind"] == "x" || p.Attributes["kind"] == "xy"
	case "c":
		return p.Topic == "u"
	case "e":
		return p.Topic == "t"
	}
	return p.Topic == "t" && (string(p.Payload) == `{"n": 1}` || string(p.Payload) == `{"n": 1.0}`)
}

// newPublication draws one whose ID may be kept.
func (m *model) newPublication(r *rapid.T) *queue.Publication {
	p := &queue.Publication{
		ID:      fmt.Sprint("p", rapid.IntRange(1, modelPublications).Draw(r, "publication")),
		Topic:   rapid.SampledFrom([]string{"t", "u"}).Draw(r, "topic"),
		Payload: []byte(rapid.SampledFrom([]string{"", `{"n": 1}`, `{"n": 1.0}`, `{"n": 2}`, "text"}).Draw(r, "payload")),
	}
	if kind := rapid.SampledFrom([]string{"", "x", "xy", "y"}).Draw(r, "kind"); kind != "" {
		p.Attributes = map[string]string{"kind": kind}
	}
	return p
}

// kept lists the publications of a topic, oldest first, those of one time by their IDs, as Redis has them.
func (t *modelTopics) kept(topic string) (ids []string) {
	for id, p := range t.publications {
		if p.Topic == topic {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.publications[a].at, t.publications[b].at), strings.Compare(a, b))
	})
	return ids
}

// subscribe makes, pauses, resumes or deletes a subscription.
func (m *model) subscribe(r *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(modelSubscriptions))).Draw(r, "subscription")
	client := rapid.SampledFrom(m.clients).Draw(r, "client")
	active, exists := m.topics.active[id]
	var err error
	switch {
	case !exists && id == "e":
		m.reuse(r)
	case !exists:
		s := modelSubscriptions[id]
		s.ID = id
		_, err = client.Subscribe(m.w.ctx, s)
		m.topics.active[id] = true
	case rapid.Bool().Draw(r, "delete"):
		err = client.Unsubscribe(m.w.ctx, id)
		delete(m.topics.active, id)
	default:
		_, err = client.ChangeSubscription(m.w.ctx, id, func(s *queue.Subscription) error { s.Active = !active; return nil })
		m.topics.active[id] = !active
	}
	if err != nil {
		r.Fatal(err)
	}
}

// reuse makes the webhook, deletes the one that there is and makes another of its ID, or changes its URL; and publishes to it.
func (m *model) reuse(r *rapid.T) {
	client := rapid.SampledFrom(m.clients).Draw(r, "client")
	url := rapid.SampledFrom([]string{"https://a.test/", "https://b.test/"}).Draw(r, "url")
	_, exists := m.topics.active["e"]
	var err error
	if exists && rapid.Bool().Draw(r, "change") {
		_, err = client.ChangeSubscription(m.w.ctx, "e", func(s *queue.Subscription) error { s.Active, s.Webhook.URL = true, url; return nil })
	} else {
		if exists {
			err = client.Unsubscribe(m.w.ctx, "e")
		}
		m.advance(r, 1)
		s := modelSubscriptions["e"]
		s.ID, s.Webhook, m.topics.hook.made = "e", &queue.Webhook{URL: url}, m.now
		_, failed := client.Subscribe(m.w.ctx, s)
		err = cmp.Or(err, failed)
	}
	m.topics.active["e"], m.topics.hook.url = true, url
	if err != nil {
		r.Fatal(err)
	}
	m.publish(r)
}

// publish publishes an ID that may be kept: then nothing comes of it, but that an accepted one of the topic gets its tasks.
func (m *model) publish(r *rapid.T) {
	is := m.newPublication(r)
	p, existed := m.topics.publications[is.ID]
	m.advance(r, 1) // the tasks of a publication that was purged may come again
	if !existed {
		p = m.accept(is)
	}
	elsewhere := p.Topic != is.Topic
	taken := existed && (string(p.Payload) != string(is.Payload) || !maps.Equal(p.Attributes, is.Attributes))
	if !elsewhere {
		m.choose(p)
	}
	got, err := rapid.SampledFrom(m.clients).Draw(r, "client").Publish(m.w.ctx, is.Topic, is.Payload, queue.PublishOptions{ID: is.ID, Attributes: is.Attributes})
	if elsewhere != errors.Is(err, queue.ErrExists) || !elsewhere && (err != nil || got.Existed != existed || got.Taken != taken || got.Subscribers != len(p.subscribers)) {
		r.Fatalf("%+v, %v, want %+v, existed %v, taken %v", got, err, p, existed, taken)
	}
}

// republish goes on with a publication, as hosts do.
func (m *model) republish(r *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.topics.publications))
	if len(ids) == 0 {
		r.Skip("nothing was published")
	}
	id := rapid.SampledFrom(ids).Draw(r, "publication")
	m.advance(r, 1)
	m.choose(m.topics.publications[id])
	if err := rapid.SampledFrom(m.clients).Draw(r, "client").Republish(m.w.ctx, id); err != nil {
		r.Fatal(err)
	}
}

// publications draws what a task publishes with its completion, whatever becomes of it.
func (m *model) publications(r *rapid.T, s *listen.Settlement) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(r, "publications") {
		s.Publications = append(s.Publications, m.newPublication(r))
	}
}

// accept keeps a publication without subscribers; nothing comes of it if one of its ID is kept.
func (m *model) accept(p *queue.Publication) *modelPublication {
	t := &m.topics
	if t.publications[p.ID] == nil {
		t.publications[p.ID] = &modelPublication{Publication: p, at: m.now, accepted: true}
		t.published[p.Topic]++
	}
	return t.publications[p.ID]
}

// choose gives a publication its subscribers and their tasks.
func (m *model) choose(p *modelPublication) {
	if !p.accepted {
		return
	}
	p.accepted = false
	for _, subscription := range slices.Sorted(maps.Keys(m.topics.active)) {
		if !m.topics.active[subscription] || !p.wants(subscription) {
			continue
		}
		p.subscribers = append(p.subscribers, subscription)
		task := queue.PublishedID(p.ID, subscription)
		if subscription == "e" {
			if _, is := m.topics.deliveries[task]; !is {
				m.topics.deliveries[task] = m.topics.hook
			}
			continue
		}
		if modelSubscriptions[subscription].Queue != "q" {
			if !slices.Contains(m.topics.others, task) {
				m.topics.others = append(m.topics.others, task)
			}
		} else if m.tasks[task] == nil {
			m.deleted = slices.DeleteFunc(m.deleted, func(other string) bool { return other == task })
			m.bear(newborn{task, &modelTask{priority: queue.DefaultPriority}}, m.now)
		}
	}
	if len(p.subscribers) == 0 {
		m.topics.dropped[p.Topic]++
	}
}

// prune forgets the oldest publications of each topic; those without their tasks stay.
func (m *model) prune(r *rapid.T) {
	keep := rapid.IntRange(1, 3).Draw(r, "keep")
	n, err := m.w.purgePublications(listen.PurgeOptions{Keep: int64(keep)})
	gone := 0
	for topic := range m.topics.published {
		kept := m.topics.kept(topic)
		for _, id := range kept[:max(0, len(kept)-keep)] {
			if !m.topics.publications[id].accepted {
				gone++
				delete(m.topics.publications, id)
			}
		}
	}
	if err != nil || n != gone {
		r.Fatalf("forgot %d, %v, want %d", n, err, gone)
	}
}

// checkTopics compares Redis with the model.
func (m *model) checkTopics(r *rapid.T) {
	var accepted []string
	for topic, published := range m.topics.published {
		kept := m.topics.kept(topic)
		all, err := manage.New(m.clients[1]).Publications(m.w.ctx, topic, 0, store.MaxPage)
		if err != nil || len(all) != len(kept) {
			r.Fatalf("%d publications of %s, %v, want %v", len(all), topic, err, kept)
		}
		for _, p := range all {
			want := m.topics.publications[p.ID]
			if want == nil || want.accepted != (p.State == queue.PublicationAccepted) || p.Tasks != len(want.subscribers) || p.Subscribers != p.Tasks {
				r.Fatalf("%+v, want %+v", p, want)
			}
			tasks, err := manage.New(m.clients[2]).PublicationTasks(m.w.ctx, p.ID, 0, store.MaxPage)
			var subscribers []string
			for _, task := range tasks {
				subscribers = append(subscribers, task.Subscription)
			}
			if err != nil || !slices.Equal(subscribers, want.subscribers) {
				r.Fatalf("%+v, %v, want %v", tasks, err, want.subscribers)
			}
			if want.accepted {
				accepted = append(accepted, p.ID)
			}
		}
		counts, err := manage.New(m.clients[0]).Topic(m.w.ctx, topic)
		if err != nil || counts.Published != int64(published) || counts.Dropped != int64(m.topics.dropped[topic]) {
			r.Fatalf("%+v, %v, want %d published, %d dropped", counts, err, published, m.topics.dropped[topic])
		}
	}
	slices.Sort(accepted)
	under, err := m.w.rdb.ZRange(m.w.ctx, m.w.Store().Keys.Publishing(), 0, -1).Result()
	if slices.Sort(under); err != nil || !slices.Equal(under, accepted) {
		r.Fatalf("under way: %v, %v, want %v", under, err, accepted)
	}
	others, err := m.w.rdb.LRange(m.w.ctx, m.w.Store().Keys.Pending("other"), 0, -1).Result()
	if slices.Reverse(others); err != nil || !slices.Equal(others, m.topics.others) {
		r.Fatalf("tasks of the other queue: %v, %v, want %v", others, err, m.topics.others)
	}
	m.checkDeliveries(r)
}

// checkDeliveries: what waits for the webhook is for the present one if that is the same, or has the same URL.
func (m *model) checkDeliveries(r *rapid.T) {
	ids, err := m.w.rdb.LRange(m.w.ctx, m.w.Store().Keys.Pending(queue.WebhookQueues+"e"), 0, -1).Result()
	if err != nil || len(ids) != len(m.topics.deliveries) {
		r.Fatalf("%d deliveries wait, %v, want %v", len(ids), err, m.topics.deliveries)
	}
	s, err := m.w.Subscription(m.w.ctx, "e")
	if errors.Is(err, queue.ErrNoSubscription) {
		return
	}
	for _, id := range ids {
		task, failed := m.w.Task(m.w.ctx, id)
		if failed = cmp.Or(err, failed); failed != nil {
			r.Fatal(failed)
		}
		was, is := m.topics.deliveries[id], m.topics.hook
		delivery, ok := s.DeliveryID(id, task.Headers)
		if want := was.made == is.made || was.url == is.url; ok != want || ok && delivery != id {
			r.Fatalf("%s was for %+v, and passes for %+v: %v", id, was, is, ok)
		}
	}
}
