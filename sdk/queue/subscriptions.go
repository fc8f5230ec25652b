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

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// subscribers is what a client knows of the tenant's subscriptions. Each change of any of them gives them another generation.
type subscribers struct {
	mu         sync.Mutex // guards what follows
	known      bool
	generation string
	all        []Subscription // by ID; never changed in place
	damaged    []string       // IDs of those that cannot be read
}

// Subscriptions lists the tenant's subscriptions, by ID. It reads them only if they have changed since this client last did. The
// error names damaged ones; the others are listed all the same.
func (c *Client) Subscriptions(ctx context.Context) ([]Subscription, error) {
	all, _, damaged, err := c.readSubscriptions(ctx)
	if err == nil && len(damaged) > 0 {
		err = fmt.Errorf("subscriptions %.100q: %w: delete them", damaged, ErrInvalid)
	}
	return slices.Clone(all), err
}

// readSubscriptions is what Subscriptions lists, with their generation.
func (c *Client) readSubscriptions(ctx context.Context) (all []Subscription, generation string, damaged []string, err error) {
	// The generation comes first: what changes before the subscriptions are read makes them look older than they are.
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

// maxSubscriptions bounds the texts of all subscriptions of a tenant together, in bytes: each host keeps them in memory.
const maxSubscriptions = 32 << 20

// subscriptionTexts reads all subscriptions, by ID. What changes meanwhile gives them another generation.
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
		if size > 2*maxSubscriptions || len(texts) > 2*MaxSubscriptions { // HSCAN may repeat some
			return nil, fmt.Errorf("key %s has more than %d fields or %d bytes, which is %w: delete what was written there by hand",
				key, MaxSubscriptions, maxSubscriptions, ErrTooLarge)
		}
		if cursor = next; cursor == 0 {
			return texts, nil
		}
	}
}

// cachedSubscriptions is what this client read last, or reads now if it has read none.
func (c *Client) cachedSubscriptions(ctx context.Context) (all []Subscription, generation string, damaged []string, err error) {
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
	s = s.withDefaults() // who writes one by hand need not know them
	s.text = text
	if err == nil && s.ID != id {
		err = fmt.Errorf("%w: subscription %q says that it is %q", ErrInvalid, id, s.ID)
	}
	return s, cmp.Or(err, s.validate())
}

// Subscription reads one: ErrNoSubscription if there is none.
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

// Subscribe makes a subscription, which is active at once, and returns it with its defaults: ErrExists if there is one of this
// ID, ErrInvalid if it is not right or the tenant has MaxSubscriptions.
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

// ChangeSubscription changes a subscription by a function, and returns it: ErrNoSubscription if there is none. If somebody else
// changes it meanwhile, the function gets it as it is then. Its ID stays. If the function returns ErrUnsubscribe, it is deleted.
func (c *Client) ChangeSubscription(ctx context.Context, id string, change func(s *Subscription) error) (Subscription, error) {
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

// Unsubscribe deletes a subscription. Its tasks stay. ErrNoSubscription if there is none.
func (c *Client) Unsubscribe(ctx context.Context, id string) error {
	for {
		text, err := c.store.RDB.HGet(ctx, c.store.Keys.Subscriptions(), id).Result() // it may be damaged
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

// errChanged is the answer of a change to what others have changed.
var errChanged = errors.New("changed meanwhile")

// writeSubscription writes a subscription with its defaults in the place of what was read.
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
	released := store.Optional(s.Webhook != nil && (old.Webhook == nil || old.Webhook.URL != s.Webhook.URL), s.Queue) // another server has asked for no pause
	if old.Queue == s.Queue || s.Plugin != "" {                                                                       // one of a plugin is served
		queue = ""
	} else if most, err = c.store.MaxQueues(ctx); err != nil {
		return err
	}
	// Reading them anew for each one would take as long as all others; but some that this client knows may be deleted.
	reads := []func(context.Context) ([]Subscription, string, []string, error){c.cachedSubscriptions, c.readSubscriptions}
	if most > 0 {
		reads = reads[1:] // of which there are few
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
	if most > 0 && len(queues) > most { // of empty ones the list of queues knows nothing after a while
		return fmt.Errorf("subscription %s: %w: those of the tenant have %d, and it may have %d queues: use one of them, or raise --max-queues of the hosts",
			s.ID, ErrManyQueues, len(queues), most)
	}
	if size > maxSubscriptions {
		return fmt.Errorf("%w: with subscription %s those of the tenant have %d bytes: at most %d: delete some", ErrInvalid, s.ID, size, maxSubscriptions)
	}
	if err = c.replaceSubscription(ctx, s.ID, s.text, string(text), queue, released); err == nil {
		s.text = string(text)
	}
	return store.Wrap("write subscription "+s.ID, err)
}

func (c *Client) replaceSubscription(ctx context.Context, id, old, text, queue, released string) error {
	answer, err := c.store.Eval(ctx, store.NewCall("subscribe", c.store.Keys.Subscriptions(), id, old, text, MaxSubscriptions, queue, released))
	switch {
	case redis.HasErrorPrefix(err, "MANYQUEUES"):
		return manyQueues(err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return err
	case store.AsString(answer) == "changed":
		return errChanged
	case store.AsString(answer) == "full":
		return fmt.Errorf("%w: the tenant has %d subscriptions: delete some", ErrInvalid, MaxSubscriptions)
	}
	return nil
}
