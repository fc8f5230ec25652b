package manage

import (
	"cmp"
	"context"
	"errors"
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

const (
	// maxQuotas is the maximum number of a tenant's quotas, together with the queues that share rates.
	maxQuotas = 1000
	// maxSharing is the maximum number of queues that share one rate.
	maxSharing = 100
)

// Quotas has quotas of a tenant by name: a QuotaKind's name, followed by ":" and the queue or the name of the rate if the
// kind needs one, such as "rate:mail". The values are texts that the kind's Form describes.
type Quotas map[string]string

// QuotaForm is the form of a quota's value.
type QuotaForm string

// The forms of values.
const (
	FormCount  QuotaForm = "count"  // a number of 1 or more; numbers of fuel may end in k, M, G or T
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
	{"memory", "", FormBytes, "bytes of memory that running tasks may use, in the fleet"},
	{"fuel_rate", "", FormRate, "fuel that tasks burn"},
	{"fuel_day", "", FormCount, "fuel that tasks burn on a day in UTC"},
	{"kv_bytes", "", FormBytes, "bytes of keys and values in all buckets"},
	{"log_bytes", "", FormBytes, "bytes of all logs of tasks"},
	{finishedQuota, "", FormBytes, "bytes of finished tasks and publications that are kept"},
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

// finishedQuota is the quota beyond which the oldest finished tasks and publications are forgotten. It refuses nothing.
const finishedQuota = "bytes_finished"

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

// ofFuel reports whether a quota of this kind counts fuel: then its numbers may end in k, M, G or T.
func (k QuotaKind) ofFuel() bool { return strings.HasPrefix(k.Name, "fuel_") }

// fuelUnit matches the last digit of a number of fuel with a unit.
var fuelUnit = regexp.MustCompile(`[0-9][kMGT]\b`)

// digits returns a value of this kind without units.
func (k QuotaKind) digits(value string) string {
	if !k.ofFuel() {
		return value
	}
	return fuelUnit.ReplaceAllStringFunc(value, func(end string) string {
		return end[:1] + strings.Repeat("000", 1+strings.Index("kMGT", end[1:]))
	})
}

// normal checks the value of the quota with this name, and returns it as Redis has it.
func (k QuotaKind) normal(name, value string) (string, error) {
	refuse := func(remedy string) (string, error) {
		return "", fmt.Errorf("%w: quota %s %.100q: %s", queue.ErrInvalid, name, value, remedy)
	}
	if value == "none" { // a word of the command line
		return refuse("use an empty value to remove it")
	}
	switch k.Form {
	case FormRate, FormShared:
		rate, queues, err := k.parseRate(value)
		switch {
		case err != nil:
			return refuse(err.Error())
		case k.Form == FormRate && len(queues) > 0:
			return refuse("write a rate alone, without queues")
		case k.Form == FormShared && len(queues) == 0:
			return refuse("name the queues that share it, such as \"10/s charge refund\"")
		case len(queues) > maxSharing:
			return refuse(fmt.Sprintf("name at most %d queues", maxSharing))
		}
		words := []string{rate.String()}
		for _, one := range queues {
			if err := queue.ValidQueue(one); err != nil {
				return refuse(err.Error())
			}
			if !slices.Contains(words[1:], one) {
				words = append(words, one)
			}
		}
		return strings.Join(words, " "), nil
	default:
		most := int64(math.MaxInt64)
		if k.Form == FormWeight {
			most = 1000
		}
		n, err := strconv.ParseInt(k.digits(value), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return refuse(fmt.Sprintf("use at most %d", int64(1)<<53))
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

// Rate is the rate of a token bucket: Tasks, or fuel, in each Per: a second, minute, hour or day. The bucket holds at
// most Burst tokens, so that many tasks can come at once after a pause.
type Rate struct {
	Tasks int64
	Per   time.Duration
	Burst int64
}

// rateUnits are the letters of units of time.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

var rateText = regexp.MustCompile(`^([0-9]{1,30})/([smhd])(?: +burst +([0-9]{1,30}))?(?: +(.*))?$`)

// maxFuel is the maximum of a rate of fuel, and of its burst: a million seconds of computing.
const maxFuel = 1_000_000_000_000_000

// parseRate parses "N/s", "N/m", "N/h" or "N/d", perhaps with " burst B", and returns the words that follow. The
// default burst is what comes in a second, and at least 1.
func (k QuotaKind) parseRate(text string) (rate Rate, rest []string, err error) {
	parts := rateText.FindStringSubmatch(strings.TrimSpace(k.digits(text)))
	what, example, most, burst := "tasks", `"100/s" or "100/s burst 200"`, int64(100_000), int64(1_000_000)
	if k.ofFuel() {
		what, example, most, burst = "fuel", `"2G/s" or "2G/s burst 10G"`, maxFuel, maxFuel
	}
	if parts == nil {
		return Rate{}, nil, fmt.Errorf("write %s by s, m, h or d, such as %s", what, example)
	}
	rate = Rate{Tasks: store.AsInt(parts[1]), Per: rateUnits[parts[2]], Burst: store.AsInt(parts[3])}
	if rate.Tasks < 1 || rate.Tasks > most || parts[3] != "" && (rate.Burst < 1 || rate.Burst > burst) {
		return Rate{}, nil, fmt.Errorf("use 1 to %d %s, and a burst of 1 to %d", most, what, burst)
	}
	rest = strings.Fields(parts[4])
	if parts[3] == "" && len(rest) > 0 && rest[0] == "burst" {
		return Rate{}, nil, fmt.Errorf("write a number after burst, such as %s", example)
	}
	rate.Burst = cmp.Or(rate.Burst, max(1, rate.Tasks/int64(rate.Per/time.Second)))
	return rate, rest, nil
}

// String returns the rate in the form that parseRate takes, with its burst.
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
	Granted     string // what the file of the hosts says, from which an operator's value may differ; "": nothing
	Used, Limit int64  // Used may exceed Limit: fuel is known when it is burnt
	Refused     int64  // how many tasks, or other things, were refused, since the quota's tenant has any
}

// Holds reports whether the quota is used up, so that tasks of a queue wait.
func (u QuotaUse) Holds(name string) bool {
	kind, of, _ := strings.Cut(u.Name, ":")
	holds := slices.Contains([]string{"running", "memory", "fuel_rate", "fuel_day", "rate", "limit"}, kind)
	ours := of == "" || of == name || kind == "limit" && slices.Contains(strings.Fields(u.Value), name)
	return holds && ours && u.Limit > 0 && u.Used >= u.Limit
}

// SetQuotas changes quotas. An empty value removes a quota, or brings back what the file of the hosts says. The change
// counts for all hosts and producers at once. The error is queue.ErrInvalid if a quota is invalid, or the tenant would
// have more than 1,000.
func SetQuotas(ctx context.Context, c *queue.Client, changes Quotas) error {
	return change(ctx, c, "", changes)
}

// GrantQuotas makes known what the file of a host says of the tenant: these quotas, and no others. A quota that differs
// from what the file said before stays, because somebody has set it. The errors are those of SetQuotas.
func GrantQuotas(ctx context.Context, c *queue.Client, granted Quotas) error {
	return change(ctx, c, "granted", granted)
}

func change(ctx context.Context, c *queue.Client, mode string, changes Quotas) error {
	normal, err := changes.Normal()
	if err != nil {
		return err
	}
	args := []any{maxQuotas, mode}
	for _, name := range slices.Sorted(maps.Keys(normal)) {
		args = append(args, name, normal[name])
	}
	s := c.Store()
	reply, err := s.Eval(ctx, store.NewCall("quotas", s.Keys.Quotas(), args...))
	answer := store.AsString(reply)
	if answer == "full" {
		return fmt.Errorf("%w: more than %d quotas and queues that share rates: remove some", queue.ErrInvalid, maxQuotas)
	}
	for _, name := range strings.Fields(strings.TrimPrefix(answer, "ok")) { // their tasks ask the new rate for a token
		err = cmp.Or(err, s.Unhold(ctx, name, ""))
	}
	return store.Wrap("change quotas", err)
}

// quotas reads the quotas of the tenant, and what the file of the hosts says.
func (m *Manager) quotas(ctx context.Context) (quotas, granted Quotas, err error) {
	all, err := m.store.Quotas(ctx)
	quotas, granted = make(Quotas, len(all)), make(Quotas)
	for name, value := range all {
		to := quotas
		if of, ok := strings.CutPrefix(name, "granted:"); ok {
			name, to = of, granted
		}
		if _, _, bad := KindOf(name); bad == nil { // a later version may have others
			to[name] = value
		}
	}
	return quotas, granted, err
}

// QuotaUses reads the tenant's quotas with what is used of them, sorted by name.
func QuotaUses(ctx context.Context, c *queue.Client) ([]QuotaUse, error) {
	m := New(c)
	quotas, granted, err := m.quotas(ctx)
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
	counts, err := m.counts(ctx, quotas, used, now)
	uses := make([]QuotaUse, 0, len(quotas))
	for _, name := range slices.Sorted(maps.Keys(quotas)) {
		kind, _, _ := KindOf(name)
		use := QuotaUse{Name: name, Value: quotas[name], Granted: granted[name], Refused: store.AsInt(used["refused:"+name])}
		switch rate, _, bad := kind.parseRate(use.Value); {
		case kind.Form == FormCount || kind.Form == FormBytes:
			use.Limit, use.Used = store.AsInt(use.Value), counts[name]
		case bad == nil && kind.Name != "key_rate" && kind.Form != FormWeight:
			use.Limit, use.Used = rate.Burst, rate.missing(store.ParseSeconds(used[name]), now)
			if !kind.ofFuel() {
				use.Used = min(use.Used, use.Limit)
			}
		}
		uses = append(uses, use)
	}
	return uses, err
}

// missing returns how many tokens are missing in the bucket, which is full again at the time full.
func (r Rate) missing(full, now time.Time) int64 {
	step := float64(r.Per) / float64(r.Tasks)
	return max(0, int64(math.Ceil(float64(full.Sub(now))/step)))
}

// counts counts what quotas bound that are no rates, by the quota's name. used is NS_used.
func (m *Manager) counts(ctx context.Context, quotas Quotas, used map[string]string,
	now time.Time,
) (map[string]int64, error) {
	counts := make(map[string]int64)
	k := m.store.Keys
	p := m.store.RDB.Pipeline()
	schedules, subscriptions := p.ZCard(ctx, k.Ticks()), p.HLen(ctx, k.Subscriptions())
	releases, queues := p.HLen(ctx, k.Releases()), p.ZRevRange(ctx, k.Queues(), 0, busiestOf-1)
	finished := p.ZScore(ctx, k.Finished(), ".") // minus their bytes
	buckets, fuel := p.HGetAll(ctx, k.Buckets()), p.HGet(ctx, k.Usage(strconv.FormatInt(now.Unix()/86400, 10)), "fuel")
	if _, err := p.Exec(ctx); store.PassReplies(err) != nil {
		return nil, store.Wrap("count what quotas bound", err)
	}
	counts["schedules"], counts["subscriptions"] = schedules.Val(), subscriptions.Val()
	counts["releases"] = max(0, releases.Val()-1) // see the field . of NS_releases
	counts["log_bytes"], counts["fuel_day"] = store.AsInt(used["log_bytes"]), store.AsInt(fuel.Val())
	counts[finishedQuota] = int64(-finished.Val())
	for _, bytes := range buckets.Val() {
		counts["kv_bytes"] += store.AsInt(bytes)
	}
	if !slices.ContainsFunc([]string{"running", "memory", "tasks_waiting", "bytes_waiting"},
		func(name string) bool { return quotas[name] != "" }) {
		return counts, nil
	}
	names := slices.DeleteFunc(queues.Val(), func(name string) bool { return queue.ValidQueue(name) != nil })
	started, err := store.Pipelined(ctx, m.store, names,
		func(p redis.Pipeliner, name string) *redis.IntCmd { return p.SCard(ctx, k.Started(name)) })
	if err != nil {
		return nil, store.Wrap("count running tasks", err)
	}
	for i, one := range started {
		counts["running"] += one.Val()
		counts["memory"] += one.Val() * store.AsInt(used["memory:"+names[i]])
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

// refuses reports whether a quota of this kind refuses something when it is full, until somebody makes room. What is
// used of rates, running tasks and their memory is soon free again, and finished tasks make room for others.
func (k QuotaKind) refuses() bool {
	fits := []string{"running", "memory", finishedQuota}
	return (k.Form == FormCount || k.Form == FormBytes) && !slices.Contains(fits, k.Name)
}

// FullestQuota returns the used part of the fullest quota that refuses something; 0 if there is none.
func FullestQuota(uses []QuotaUse) (share float64) {
	for _, use := range uses {
		kind, _, _ := KindOf(use.Name)
		if kind.refuses() {
			share = max(share, float64(use.Used)/float64(use.Limit))
		}
	}
	return share
}
