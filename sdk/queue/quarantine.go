package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Quarantine is a version of a plugin whose tasks ended several hosts. Hosts reserve nothing for it until
// it ends; its tasks wait.
type Quarantine struct {
	Plugin, Digest string
	// Listeners are those that died, and Until is when the quarantine ends by itself.
	Listeners []string
	Until     time.Time
}

// Quarantines lists what is quarantined now in the tenant, by plugin and digest.
func (c *Client) Quarantines(ctx context.Context) ([]Quarantine, error) {
	versions, err := c.rdb.HGetAll(ctx, c.keys.crashes()).Result()
	if err != nil {
		return nil, fmt.Errorf("read quarantines of %s: %w", c.keys.crashes(), err)
	}
	if len(versions) == 0 {
		return nil, nil
	}
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	var list []Quarantine
	for version, text := range versions { // "UNTIL LISTENER SECOND LISTENER SECOND ..."
		words := strings.Fields(text)
		if len(words) == 0 || !parseSeconds(words[0]).After(now) {
			continue
		}
		q := Quarantine{Until: parseSeconds(words[0])}
		q.Plugin, q.Digest, _ = strings.Cut(version, " ")
		for i := 1; i < len(words); i += 2 {
			q.Listeners = append(q.Listeners, words[i])
		}
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b Quarantine) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Digest, b.Digest))
	})
	return list, nil
}

// EndQuarantine lets hosts run a version of a plugin again, and forgets which of them it ended.
func (c *Client) EndQuarantine(ctx context.Context, plugin, digest string) error {
	return wrap("release plugin "+plugin, c.rdb.HDel(ctx, c.keys.crashes(), plugin+" "+digest).Err())
}
