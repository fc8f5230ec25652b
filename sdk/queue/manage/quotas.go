package manage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// QuotaError is the error of a call that a quota of the tenant refuses. It matches ErrQuota and queue.ErrQueueFull.
type QuotaError = store.QuotaError

// ErrQuota matches every QuotaError.
var ErrQuota = store.ErrQuota

// ReasonDropped is the reason of a task that a newer one displaced: see queue.Queue.SetRollingLimit.
const ReasonDropped queue.Reason = "dropped"

// maxQuotas is the maximum number of a tenant's quotas.
const maxQuotas = 1000

// Quotas has quotas of a tenant by name: a QuotaKind's name, followed by ":" and the queue or the name of the rate if the
// kind needs one, such as "rate:mail". The values are texts that the kind's Form describes.
type Quotas map[string]string

// QuotaForm is the form of a quota's value.
type QuotaForm string

// The forms of values.
const (
	FormCount  QuotaForm = "count"  // a number of 1 or more
	FormBytes  QuotaForm = "bytes"  // the same, a number of bytes
	FormRate   QuotaForm = "rate"   // "N/s", "N/m", "N/h" or "N/d", and perhaps " burst B"
	FormShared QuotaForm = "shared" // a rate, then the queues that share it
	FormWeight QuotaForm = "weight" // a number of 1 to 1000
)

// QuotaKind is a kind of quotas.
type QuotaKind struct {
	Name  string
	Of    string // what follows the name: "QUEUE", "NAME" (of a rate that queues share), or "" for nothing
	Form  QuotaForm
	About string // what is bounded, for people
}

// QuotaKinds lists all kinds.
var QuotaKinds = []QuotaKind{
	{"tasks_waiting", "", FormCount, "tasks that wait in all queues"},
	{"bytes_waiting", "", FormBytes, "bytes of parameters of waiting tasks, an estimate"},
	{"enqueue_rate", "", FormRate, "tasks that producers enqueue"},
	{"running", "", FormCount, "tasks that run in the fleet at once"},
	{"rate", "", FormRate, "tasks that start, of all queues together"},
	{"rate", "QUEUE", FormRate, "tasks that start, of one queue"},
	{"key_rate", "QUEUE", FormRate, "tasks that start, of each key of a queue"},
	{"limit", "NAME", FormShared, "tasks that start, of several queues together"},
	{"schedules", "", FormCount, "schedules"},
	{"subscriptions", "", FormCount, "subscriptions"},
	{"releases", "", FormCount, "plugins that have releases"},
	{"weight", "", FormWeight, "the tenant's share of busy hosts"},
	{"weight", "QUEUE", FormWeight, "a queue's share of what the tenant gets"},
}

// limitName matches the name of a rate that queues share.
var limitName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// KindOf returns the kind of the quota with this name, and what follows the kind's name. The error says what is wrong
// with the name.
func KindOf(name string) (kind QuotaKind, of string, err error) {
	word, of, named := strings.Cut(name, ":")
	i := slices.IndexFunc(QuotaKinds, func(k QuotaKind) bool { return k.Name == word && (k.Of != "") == named })
	if i < 0 {
		var known []string
		for _, k := range QuotaKinds {
			known = append(known, strings.TrimSuffix(k.Name+":"+k.Of, ":"))
		}
		return kind, "", fmt.Errorf("%w: quota %q: use one of %s", queue.ErrInvalid, name, strings.Join(known, ", "))
	}
	kind = QuotaKinds[i]
	switch {
	case kind.Of == "QUEUE":
		err = queue.ValidQueue(of)
	case kind.Of == "NAME" && !limitName.MatchString(of):
		err = fmt.Errorf("%w: quota %q: name the limit with up to 64 of a-z 0-9 _ . -", queue.ErrInvalid, name)
	}
	return kind, of, err
}

// Normal returns the quotas with their values in the form in which Redis has them. An empty value stays, and stands
// for no quota. The error names the first quota that is invalid.
func (q Quotas) Normal() (Quotas, error) {
	normal := make(Quotas, len(q))
	for _, name := range slices.Sorted(maps.Keys(q)) {
		kind, _, err := KindOf(name)
		if err == nil && q[name] != "" {
			normal[name], err = kind.normal(name, q[name])
		} else {
			normal[name] = ""
		}
		if err != nil {
			return nil, err
		}
	}
	return normal, nil
}

// normal checks the value of the quota with this name, and returns it as Redis has it.
func (k QuotaKind) normal(name, value string) (string, error) {
	refuse := func(remedy string) (string, error) {
		return "", fmt.Errorf("%w: quota %s %q: %s", queue.ErrInvalid, name, value, remedy)
	}
	switch k.Form {
	case FormRate, FormShared:
		rate, queues, err := ParseRate(value)
		switch {
		case err != nil:
			return refuse(err.Error())
		case k.Form == FormRate && len(queues) > 0:
			return refuse("write a rate alone, such as \"100/s\" or \"100/s burst 200\"")
		case k.Form == FormShared && len(queues) == 0:
			return refuse("name the queues that share it, such as \"10/s charge refund\"")
		}
		for _, one := range queues {
			if err := queue.ValidQueue(one); err != nil {
				return refuse(err.Error())
			}
		}
		return strings.Join(append([]string{rate.String()}, queues...), " "), nil
	default:
		most := int64(math.MaxInt64)
		if k.Form == FormWeight {
			most = 1000
		}
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil || n < 1 || n > most:
			remedy := "use a number of 1 or more"
			if k.Form == FormWeight {
				remedy = "use a number of 1 to 1000"
			}
			return refuse(remedy)
		case n > 1<<53:
			return strconv.FormatInt(1<<53, 10), nil // a script's numbers are exact up to here
		}
		return strconv.FormatInt(n, 10), nil
	}
}

// Rate is the rate of a token bucket: Tasks in each Per, which is a second, minute, hour or day. The bucket holds at
// most Burst tokens, so that many tasks can come at once after a pause.
type Rate struct {
	Tasks int64
	Per   time.Duration
	Burst int64
}

// rateUnits are the letters of units of time.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

var rateText = regexp.MustCompile(`^([0-9]{1,9})/([smhd])(?: +burst +([0-9]{1,9}))?(?: +(.*))?$`)

// ParseRate parses "N/s", "N/m", "N/h" or "N/d", perhaps with " burst B", and returns the words that follow. The default
// burst is what comes in a second, and at least 1.
func ParseRate(text string) (rate Rate, rest []string, err error) {
	parts := rateText.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return Rate{}, nil, fmt.Errorf("write tasks by s, m, h or d, such as \"100/s\" or \"100/s burst 200\"")
	}
	rate = Rate{Tasks: store.AsInt(parts[1]), Per: rateUnits[parts[2]], Burst: store.AsInt(parts[3])}
	if rate.Tasks < 1 || rate.Tasks > 100_000 || parts[3] != "" && (rate.Burst < 1 || rate.Burst > 1_000_000) {
		return Rate{}, nil, fmt.Errorf("use 1 to 100000 tasks, and a burst of 1 to 1000000")
	}
	rate.Burst = cmp.Or(rate.Burst, max(1, rate.Tasks*int64(time.Second)/int64(rate.Per)))
	return rate, strings.Fields(parts[4]), nil
}

// String returns the rate in the form that ParseRate takes, with its burst.
func (r Rate) String() string {
	unit := "s"
	for letter, per := range rateUnits {
		if per == r.Per {
			unit = letter
		}
	}
	return fmt.Sprintf("%d/%s burst %d", r.Tasks, unit, r.Burst)
}

// QuotaUse is a quota and how much of it is used. For a rate, Limit is the burst and Used how many tokens are missing
// in the bucket. Kinds that count nothing have neither: weights, and rates of keys.
type QuotaUse struct {
	Name        string
	Value       string
	Used, Limit int64
	Refused     int64 // how many tasks, or other things, were refused, since the quota's tenant has any
}

// SetQuotas changes quotas. An empty value removes a quota. The change counts for all hosts and producers at once. The
// error is queue.ErrInvalid if a quota is invalid, or the tenant would have more than 1,000.
func SetQuotas(ctx context.Context, c *queue.Client, changes Quotas) error {
	normal, err := changes.Normal()
	if err != nil {
		return err
	}
	args := []any{maxQuotas}
	for _, name := range slices.Sorted(maps.Keys(normal)) {
		args = append(args, name, normal[name])
	}
	answer, err := c.Store().Eval(ctx, store.NewCall("quotas", c.Store().Keys.Quotas(), args...))
	if answer == "full" {
		return fmt.Errorf("%w: more than %d quotas: remove some", queue.ErrInvalid, maxQuotas)
	}
	return store.Wrap("change quotas", err)
}

func (m *Manager) quotas(ctx context.Context) (Quotas, error) {
	all, err := m.store.RDB.HGetAll(ctx, m.store.Keys.Quotas()).Result()
	quotas := make(Quotas, len(all))
	for name, value := range all {
		if _, _, bad := KindOf(name); bad == nil { // a later version may have others
			quotas[name] = value
		}
	}
	return quotas, store.Wrap("read quotas in "+m.store.Keys.Quotas(), err)
}

// QuotaUses reads the tenant's quotas with what is used of them, sorted by name.
func QuotaUses(ctx context.Context, c *queue.Client) ([]QuotaUse, error) {
	m := New(c)
	quotas, err := m.quotas(ctx)
	if err != nil || len(quotas) == 0 {
		return nil, err
	}
	used, err := m.store.RDB.HGetAll(ctx, m.store.Keys.Used()).Result()
	if err != nil {
		return nil, store.Wrap("read "+m.store.Keys.Used(), err)
	}
	now, err := m.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := m.counts(ctx, quotas, used)
	uses := make([]QuotaUse, 0, len(quotas))
	for _, name := range slices.Sorted(maps.Keys(quotas)) {
		kind, _, _ := KindOf(name)
		use := QuotaUse{Name: name, Value: quotas[name], Refused: store.AsInt(used["refused:"+name])}
		switch rate, _, bad := ParseRate(use.Value); {
		case kind.Form == FormCount || kind.Form == FormBytes:
			use.Limit, use.Used = store.AsInt(use.Value), counts[name]
		case bad == nil && kind.Name != "key_rate" && kind.Form != FormWeight:
			use.Limit, use.Used = rate.Burst, rate.missing(store.ParseSeconds(used[name]), now)
		}
		uses = append(uses, use)
	}
	return uses, err
}

// missing returns how many tokens are missing in the bucket, which is full again at the time full.
func (r Rate) missing(full, now time.Time) int64 {
	step := float64(r.Per) / float64(r.Tasks)
	return max(0, min(r.Burst, int64(math.Ceil(float64(full.Sub(now))/step))))
}

// counts counts what quotas bound that are no rates, by the quota's name. used is NS_used.
func (m *Manager) counts(ctx context.Context, quotas Quotas, used map[string]string) (map[string]int64, error) {
	counts := make(map[string]int64)
	k := m.store.Keys
	p := m.store.RDB.Pipeline()
	schedules, subscriptions := p.ZCard(ctx, k.Ticks()), p.HLen(ctx, k.Subscriptions())
	releases, queues := p.HLen(ctx, k.Releases()), p.ZRevRange(ctx, k.Queues(), 0, busiestOf-1)
	if _, err := p.Exec(ctx); store.PassReplies(err) != nil {
		return nil, store.Wrap("count what quotas bound", err)
	}
	counts["schedules"], counts["subscriptions"] = schedules.Val(), subscriptions.Val()
	counts["releases"] = max(0, releases.Val()-1) // see the field . of NS_releases
	if quotas["running"] == "" && quotas["tasks_waiting"] == "" && quotas["bytes_waiting"] == "" {
		return counts, nil
	}
	names := slices.DeleteFunc(queues.Val(), func(name string) bool { return queue.ValidQueue(name) != nil })
	started, err := store.Pipelined(ctx, m.store, names,
		func(p redis.Pipeliner, name string) *redis.IntCmd { return p.SCard(ctx, k.Started(name)) })
	if err != nil {
		return nil, store.Wrap("count running tasks", err)
	}
	for _, one := range started {
		counts["running"] += one.Val()
	}
	stats, err := m.Stats(ctx, names...)
	for _, s := range stats {
		counts["tasks_waiting"] += s.Depth[queue.Pending] + s.Depth[queue.Scheduled]
	}
	if words := strings.Fields(used["waiting"]); len(words) > 3 {
		counts["bytes_waiting"] = store.AsInt(words[1]) + store.AsInt(words[3])
		if counts["tasks_waiting"] == 0 {
			counts["bytes_waiting"] = 0 // see hoard in batch.lua: it does not count what left
		}
	}
	return counts, err
}

// FullestQuota returns the used part of the fullest quota of those that refuse what is over, and are no rates; 0 if
// there is none.
func FullestQuota(uses []QuotaUse) (share float64) {
	for _, use := range uses {
		kind, _, _ := KindOf(use.Name)
		if (kind.Form == FormCount || kind.Form == FormBytes) && kind.Name != "running" {
			share = max(share, float64(use.Used)/float64(use.Limit))
		}
	}
	return share
}
