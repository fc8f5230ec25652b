package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// modelTopic is what a model has of one topic: its subscriptions, each to the queue of the model, and its publications.
type modelTopic struct {
	subscriptions map[string]bool // by ID: active
	publications  map[string]*modelPublication
	order         []string // of those that are kept, oldest first, those of one time by their IDs, as Redis has them
	dropped       int      // of all since the topic is there
	published     int
}

type modelPublication struct {
	at          int
	accepted    bool // and no more: its subscribers are not chosen
	subscribers []string
}

const modelPublications = 6 // so that an ID comes again

// subscribe makes, pauses, resumes or deletes a subscription.
func (m *model) subscribe(r *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "subscription")
	client := rapid.SampledFrom(m.clients).Draw(r, "client")
	active, exists := m.topic.subscriptions[id]
	var err error
	switch {
	case !exists:
		_, err = client.Subscribe(m.w.ctx, Subscription{ID: id, Topic: "t", Queue: "q"})
		m.topic.subscriptions[id] = true
	case rapid.Bool().Draw(r, "delete"):
		err = client.Unsubscribe(m.w.ctx, id)
		delete(m.topic.subscriptions, id)
	default:
		_, err = client.ChangeSubscription(m.w.ctx, id, func(s *Subscription) error { s.Active = !active; return nil })
		m.topic.subscriptions[id] = !active
	}
	if err != nil {
		r.Fatal(err)
	}
}

// publish publishes an ID that may be kept: then nothing comes of it, but that an accepted one gets its tasks.
func (m *model) publish(r *rapid.T) {
	id := fmt.Sprint("p", rapid.IntRange(1, modelPublications).Draw(r, "publication"))
	p, existed := m.topic.publications[id]
	m.advance(r, 1) // the tasks of a publication that was purged may come again
	if !existed {
		p = m.accept(id)
	}
	m.choose(id, p)
	got, err := rapid.SampledFrom(m.clients).Draw(r, "client").Publish(m.w.ctx, "t", nil, PublishOptions{ID: id})
	if err != nil || got.Existed != existed || got.Subscribers != len(p.subscribers) {
		r.Fatalf("%+v, %v, want %d subscribers, existed %v", got, err, len(p.subscribers), existed)
	}
}

// republish goes on with a publication, as hosts do.
func (m *model) republish(r *rapid.T) {
	if len(m.topic.order) == 0 {
		r.Skip("nothing was published")
	}
	id := rapid.SampledFrom(m.topic.order).Draw(r, "publication")
	m.advance(r, 1)
	m.choose(id, m.topic.publications[id])
	if err := rapid.SampledFrom(m.clients).Draw(r, "client").Republish(m.w.ctx, id); err != nil {
		r.Fatal(err)
	}
}

// publications draws what a task publishes with its completion, whatever becomes of it.
func (m *model) publications(r *rapid.T, s *Settlement) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(r, "publications") {
		id := fmt.Sprint("p", rapid.IntRange(1, modelPublications).Draw(r, "publication"))
		s.Publications = append(s.Publications, &Publication{ID: id, Topic: "t"})
	}
}

// accept keeps a publication without subscribers; nothing comes of it if one of its ID is kept.
func (m *model) accept(id string) *modelPublication {
	if _, ok := m.topic.publications[id]; !ok {
		m.topic.publications[id] = &modelPublication{at: m.now, accepted: true}
		m.topic.order = append(m.topic.order, id)
		slices.SortFunc(m.topic.order, func(a, b string) int {
			return cmp.Or(cmp.Compare(m.topic.publications[a].at, m.topic.publications[b].at), strings.Compare(a, b))
		})
		m.topic.published++
	}
	return m.topic.publications[id]
}

// choose gives a publication its subscribers and their tasks.
func (m *model) choose(id string, p *modelPublication) {
	if !p.accepted {
		return
	}
	p.accepted = false
	for _, subscription := range slices.Sorted(maps.Keys(m.topic.subscriptions)) {
		if !m.topic.subscriptions[subscription] {
			continue
		}
		p.subscribers = append(p.subscribers, subscription)
		if task := PublishedID(id, subscription); m.tasks[task] == nil {
			m.deleted = slices.DeleteFunc(m.deleted, func(other string) bool { return other == task })
			m.bear(newborn{task, &modelTask{priority: DefaultPriority}}, m.now)
		}
	}
	if len(p.subscribers) == 0 {
		m.topic.dropped++
	}
}

// prune forgets the oldest publications; those without their tasks stay.
func (m *model) prune(r *rapid.T) {
	keep := rapid.IntRange(1, 3).Draw(r, "keep")
	n, err := m.w.purgePublications(PurgeOptions{Keep: int64(keep)})
	var gone []string
	for _, id := range m.topic.order[:max(0, len(m.topic.order)-keep)] {
		if !m.topic.publications[id].accepted {
			gone = append(gone, id)
			delete(m.topic.publications, id)
		}
	}
	m.topic.order = slices.DeleteFunc(m.topic.order, func(id string) bool { return slices.Contains(gone, id) })
	if err != nil || n != len(gone) {
		r.Fatalf("forgot %d, %v, want %v", n, err, gone)
	}
}

// checkTopic compares Redis with the model.
func (m *model) checkTopic(r *rapid.T) {
	all, err := m.clients[1].Publications(m.w.ctx, "t", 0, maxPage)
	if err != nil || len(all) != len(m.topic.order) {
		r.Fatalf("%d publications, %v, want %v", len(all), err, m.topic.order)
	}
	var accepted []string
	for _, p := range all {
		want := m.topic.publications[p.ID]
		if want == nil || want.accepted != (p.State == PublicationAccepted) || p.Tasks != len(want.subscribers) || p.Subscribers != p.Tasks {
			r.Fatalf("%+v, want %+v", p, want)
		}
		tasks, err := m.clients[2].PublicationTasks(m.w.ctx, p.ID, 0, maxPage)
		if err != nil || len(tasks) != len(want.subscribers) {
			r.Fatalf("%+v, %v, want %v", tasks, err, want.subscribers)
		}
		if want.accepted {
			accepted = append(accepted, p.ID)
		}
	}
	slices.Sort(accepted)
	under, err := m.w.rdb.ZRange(m.w.ctx, m.w.keys.publishing(), 0, -1).Result()
	if slices.Sort(under); err != nil || !slices.Equal(under, accepted) {
		r.Fatalf("under way: %v, %v, want %v", under, err, accepted)
	}
	if len(m.topic.order) == 0 {
		return
	}
	counts, err := m.clients[0].Topic(m.w.ctx, "t")
	if err != nil || counts.Published != int64(m.topic.published) || counts.Dropped != int64(m.topic.dropped) {
		r.Fatalf("%+v, %v, want %d published, %d dropped", counts, err, m.topic.published, m.topic.dropped)
	}
}
