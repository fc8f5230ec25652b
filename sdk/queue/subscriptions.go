package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// subscribers is a client's cache of the tenant's subscriptions. Each change of a subscription in Redis also changes
// the generation, which shows whether the cache is up to date.
type subscribers struct {
	mu         sync.Mutex // guards the following fields
	known      bool       // whether the subscriptions have been read
	generation string
	all        []Subscription // sorted by ID; never changed in place
	damaged    []string       // IDs of subscriptions that cannot be read
}

// Subscriptions lists the tenant's subscriptions, sorted by ID. It reads them only if they have changed since this
// client last read them. If some are damaged, the error names them, and the others are still returned.
func (c *Client) Subscriptions(ctx context.Context) ([]Subscription, error) {
	all, _, damaged, err := c.readSubscriptions(ctx)
	if err == nil && len(damaged) > 0 {
		err = fmt.Errorf("subscriptions %.100q: %w: delete them", damaged, ErrInvalid)
	}
	return slices.Clone(all), err
}

// readSubscriptions returns all readable subscriptions with their generation, and the IDs of the damaged ones. It reads
// them from Redis only if the generation has changed.
func (c *Client) readSubscriptions(ctx context.Context) (
	all []Subscription, generation string, damaged []string, err error,
) {
	// The generation is read first. If the subscriptions change before they are read, the cache counts as older than it
	// is, and is just read once more.
	generation, err = c.store.RDB.Get(ctx, c.store.Keys.Generation()).Result()
	if store.IsNil(err) {
		generation, err = "0", nil
	}
	if err != nil {
		return nil, "", nil, fmt.Errorf("read generation of subscriptions: %w", err)
	}
	s := &c.subscribers
	s.mu.Lock()
	known := s.known && s.generation == generation
	all, damaged = s.all, s.damaged
	s.mu.Unlock()
	if known {
		return all, generation, damaged, nil
	}
	texts, err := c.subscriptionTexts(ctx)
	if err != nil {
		return nil, "", nil, fmt.Errorf("read subscriptions: %w", err)
	}
	all, damaged = make([]Subscription, 0, len(texts)), nil
	for id, text := range texts {
		one, err := parseSubscription(id, text)
		if err != nil {
			damaged = append(damaged, id)
			continue
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Subscription) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(damaged)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.generation, s.all, s.damaged = true, generation, all, damaged
	return all, generation, damaged, nil
}

// maxSubscriptions is the maximum size of all subscriptions of a tenant as JSON, in bytes. Each host keeps them in
// memory.
const maxSubscriptions = 32 << 20

// subscriptionTexts returns the JSON of all subscriptions, by ID. A change during the read does no harm, because it
// changes the generation.
func (c *Client) subscriptionTexts(ctx context.Context) (map[string]string, error) {
	key := c.store.Keys.Subscriptions()
	if _, is := c.store.RDB.(store.Bounded); !is {
		return c.store.RDB.HGetAll(ctx, key).Result()
	}
	texts, size := make(map[string]string), 0
	for cursor := uint64(0); ; {
		found, next, err := c.store.RDB.HScan(ctx, key, cursor, "", store.LargeItems).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(found); i += 2 {
			size += len(found[i]) + len(found[i+1])
			texts[found[i]] = found[i+1]
		}
		if size > 2*maxSubscriptions || len(texts) > 2*MaxSubscriptions { // HSCAN may return a field twice
			return nil, fmt.Errorf("key %s has more than %d fields or %d bytes, which is %w: delete the fields that were written by hand",
				key, MaxSubscriptions, maxSubscriptions, ErrTooLarge)
		}
		if cursor = next; cursor == 0 {
			return texts, nil
		}
	}
}

// cachedSubscriptions returns the subscriptions that this client read last. It reads them from Redis if it has not read
// any before.
func (c *Client) cachedSubscriptions(ctx context.Context) (
	all []Subscription, generation string, damaged []string, err error,
) {
	s := &c.subscribers
	s.mu.Lock()
	all, generation, damaged, known := s.all, s.generation, s.damaged, s.known
	s.mu.Unlock()
	if known {
		return all, generation, damaged, nil
	}
	return c.readSubscriptions(ctx)
}

func parseSubscription(id, text string) (Subscription, error) {
	var s Subscription
	err := json.Unmarshal([]byte(text), &s)
	s = s.withDefaults() // a subscription written by hand may lack them
	s.text = text
	if err == nil && s.ID != id {
		err = fmt.Errorf("%w: the text of subscription %q has another ID: %q", ErrInvalid, id, s.ID)
	}
	return s, cmp.Or(err, s.validate())
}

// Subscription reads a subscription. The error is ErrNoSubscription if no subscription has this ID.
func (c *Client) Subscription(ctx context.Context, id string) (Subscription, error) {
	text, err := c.store.RDB.HGet(ctx, c.store.Keys.Subscriptions(), id).Result()
	if store.IsNil(err) {
		return Subscription{}, fmt.Errorf("subscription %s: %w", id, ErrNoSubscription)
	}
	if err != nil {
		return Subscription{}, fmt.Errorf("read subscription %s: %w", id, err)
	}
	return parseSubscription(id, text)
}

// Subscribe makes a subscription, which is active at once, and returns it with its defaults. The error is ErrExists if
// a subscription has this ID, and ErrInvalid if a field is invalid or the tenant has MaxSubscriptions already.
func (c *Client) Subscribe(ctx context.Context, s Subscription) (Subscription, error) {
	s.Active, s.Reason, s.CreatedAt, s.text = true, "", time.Time{}, ""
	if err := s.forbidden(); err != nil {
		return s, err
	}
	err := c.writeSubscription(ctx, &s)
	if errors.Is(err, errChanged) {
		return s, fmt.Errorf("subscription %s: %w", s.ID, ErrExists)
	}
	return s, err
}

// ChangeSubscription calls change with a subscription, stores the changed subscription and returns it. If somebody else
// changes the subscription meanwhile, change is called again with the new version. A change of the ID is ignored. If
// change returns ErrUnsubscribe, the subscription is deleted. The error is ErrNoSubscription if no subscription has
// this ID.
func (c *Client) ChangeSubscription(ctx context.Context, id string,
	change func(s *Subscription) error,
) (Subscription, error) {
	for {
		s, err := c.Subscription(ctx, id)
		if err != nil {
			return s, err
		}
		text, before := s.text, s.forbidden()
		if err = change(&s); errors.Is(err, ErrUnsubscribe) {
			if err = c.replaceSubscription(ctx, id, text, "", "", ""); errors.Is(err, errChanged) {
				continue
			}
			return s, store.Wrap("delete subscription "+id, err)
		}
		if err != nil {
			return s, err
		}
		if err := s.forbidden(); err != nil && before == nil {
			return s, err
		}
		s.ID, s.text = id, text
		if err = c.writeSubscription(ctx, &s); !errors.Is(err, errChanged) {
			return s, err
		}
	}
}

// Unsubscribe deletes a subscription. Its tasks stay. The error is ErrNoSubscription if no subscription has this ID.
func (c *Client) Unsubscribe(ctx context.Context, id string) error {
	for {
		// The text is not parsed: a damaged subscription can be deleted too.
		text, err := c.store.RDB.HGet(ctx, c.store.Keys.Subscriptions(), id).Result()
		if store.IsNil(err) {
			return fmt.Errorf("subscription %s: %w", id, ErrNoSubscription)
		}
		if err == nil {
			err = c.replaceSubscription(ctx, id, text, "", "", "")
		}
		if !errors.Is(err, errChanged) {
			return store.Wrap("delete subscription "+id, err)
		}
	}
}

// errChanged means that somebody else has changed the subscription since the caller read it.
var errChanged = errors.New("changed meanwhile")

// writeSubscription stores a subscription with its defaults. It returns errChanged if the JSON in Redis is no longer
// s.text; "" stands for no subscription.
func (c *Client) writeSubscription(ctx context.Context, s *Subscription) error {
	*s = s.withDefaults()
	if err := s.validate(); err != nil {
		return err
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return err
	}
	s.CreatedAt, s.UpdatedAt = cmp.Or(s.CreatedAt, now), now
	text, err := json.Marshal(s)
	if err != nil || len(text) > maxSubscription {
		return fmt.Errorf("%w: subscription %s of %d bytes: at most %d", ErrInvalid, s.ID, len(text), maxSubscription)
	}
	queue, most := s.Queue, 0
	old, _ := parseSubscription(s.ID, s.text)
	// The server of the old URL asked for the hold of the queue, so a new URL ends the hold.
	released := store.Optional(s.Webhook != nil && (old.Webhook == nil || old.Webhook.URL != s.Webhook.URL), s.Queue)
	if old.Queue == s.Queue || s.Plugin != "" { // the queue of a plugin exists, because a host serves it
		queue = ""
	} else if most, err = c.store.MaxQueues(ctx); err != nil {
		return err
	}
	// The limits are checked against the cached subscriptions, because it would take long to read all subscriptions each
	// time one is written. Only if the cached ones exceed a limit are all of them read, because some may have been
	// deleted.
	reads := []func(context.Context) ([]Subscription, string, []string, error){c.cachedSubscriptions, c.readSubscriptions}
	if most > 0 {
		reads = reads[1:] // skips the cache; this is rare, because few subscriptions make a new queue
	}
	size, queues := 0, map[string]bool{}
	for _, read := range reads {
		all, _, _, err := read(ctx)
		if err != nil {
			return err
		}
		size, queues = len(text), map[string]bool{s.Queue: true}
		for i := range all {
			if all[i].ID != s.ID {
				size += len(all[i].text)
				queues[all[i].Queue] = true
			}
		}
		if size <= maxSubscriptions {
			break
		}
	}
	// The list of queues in Redis forgets an empty queue after a while, so the queues of subscriptions are counted here.
	if most > 0 && len(queues) > most {
		return fmt.Errorf("subscription %s: %w: the tenant's subscriptions would use %d queues, and the maximum is %d: use an existing queue, or raise --max-queues of the hosts",
			s.ID, ErrManyQueues, len(queues), most)
	}
	if size > maxSubscriptions {
		return fmt.Errorf("%w: with subscription %s the tenant's subscriptions have %d bytes, and the maximum is %d: delete some",
			ErrInvalid, s.ID, size, maxSubscriptions)
	}
	if err = c.replaceSubscription(ctx, s.ID, s.text, string(text), queue, released); err == nil {
		s.text = string(text)
	}
	return store.Wrap("write subscription "+s.ID, err)
}

func (c *Client) replaceSubscription(ctx context.Context, id, old, text, queue, released string) error {
	answer, err := c.store.Eval(ctx, store.NewCall("subscribe", c.store.Keys.Subscriptions(), id, old, text,
		MaxSubscriptions, queue, released))
	over := c.store.Over(err)
	switch {
	case over != nil:
		return over
	case redis.HasErrorPrefix(err, "MANYQUEUES"):
		return manyQueues(err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return err
	case store.AsString(answer) == "changed":
		return errChanged
	case store.AsString(answer) == "full":
		return fmt.Errorf("%w: the tenant already has %d subscriptions, the maximum: delete some", ErrInvalid, MaxSubscriptions)
	}
	return nil
}
