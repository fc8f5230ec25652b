package doctor

import (
	"slices"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// maxTopics is the maximum number of findings of each check in topicChecks.
const maxTopics = 20

var topicChecks = []check{
	{"topic-paused", func(p *patient) {
		for _, t := range p.topics {
			if t.Subscriptions > 0 && t.Active == 0 {
				f := p.found(Warning, "end the pause of one", "all %d subscriptions of topic %s are paused: what is published is dropped", t.Subscriptions, t.Name)
				if s := p.subscription(func(s queue.Subscription) bool { return s.OfTopic(t.Name) }); s != nil {
					f.by("subscription", "resume", s.ID)
				}
			}
		}
		p.findings = p.findings[:min(len(p.findings), maxTopics)]
	}},
	{"topic-dropped", func(p *patient) {
		for _, t := range p.topics {
			if t.Subscriptions == 0 && t.Dropped > 0 {
				p.found(Warning, "subscribe to it, or publish to another",
					"%s to topic %s had no subscriber, and nobody subscribes to it", publications(int(t.Dropped)), t.Name).
					by("publication", "ls", t.Name)
			}
		}
		p.findings = p.findings[:min(len(p.findings), maxTopics)]
	}},
	{"subscription-unserved", func(p *patient) {
		for _, s := range p.subscriptions {
			if s.Active && s.Webhook == nil && !p.served[s.Queue] && p.unread["the hosts"] == nil {
				p.found(Warning, "start a host whose plugins serve it, or correct the queue",
					"the subscription %s makes tasks in queue %s, which no listener serves", s.ID, s.Queue).
					in(s.Queue).by("subscription", "show", s.ID)
			}
		}
		p.findings = p.findings[:min(len(p.findings), maxTopics)]
	}},
	{"subscription-damaged", func(p *patient) {
		if p.damaged != nil {
			p.found(Error, "make them again after `quern subscription delete`; if a newer version of Quern wrote them, upgrade this one", "what is published makes no task for some: %v", p.damaged)
		}
	}},
	{"publication-unfinished", func(p *patient) {
		if len(p.unpublished) > 0 {
			p.found(Error, "start a host: it goes on with them; if one runs, its log tells why it cannot",
				"subscribers of %s have no task, such as those of %s", publications(len(p.unpublished)), p.unpublished[0]).
				by("publication", "show", p.unpublished[0])
		}
	}},
}

func publications(n int) string { return units.Count(n, "publication", "publications") }

// subscription returns the first subscription for which the function is returns true, or nil if there is none.
func (p *patient) subscription(is func(queue.Subscription) bool) *queue.Subscription {
	if i := slices.IndexFunc(p.subscriptions, is); i >= 0 {
		return &p.subscriptions[i]
	}
	return nil
}
