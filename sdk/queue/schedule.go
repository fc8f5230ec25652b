package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/seal"
)

const (
	// MaxSchedules is the maximum number of schedules of a tenant.
	MaxSchedules = 10_000
	// maxScheduleParameters is the maximum size of a schedule's parameters, in bytes. maxScheduleCron is the maximum
	// length of its cron expression, and of its time zone.
	maxScheduleParameters = 64 << 10
	maxScheduleCron       = 256
	// MaxMissed is the maximum number of missed ticks that a schedule fires at once.
	MaxMissed = 1000
)

// Errors of schedules that callers can test for with errors.Is.
var (
	ErrNoSchedule    = errors.New("no such schedule")
	ErrOwned         = errors.New("it has another owner")                                       // nothing was written
	ErrOvertaken     = errors.New("another sync of this owner's schedules has begun meanwhile") // that sync wins
	ErrManySchedules = fmt.Errorf("the tenant has %d schedules, which is the most", MaxSchedules)
)

// Missed chooses which missed ticks a schedule fires. A tick is missed if no host was running when it came.
type Missed string

// MissedSkip fires no missed tick, MissedOne the last one, MissedAll the last Schedule.MaxMissed ticks.
const (
	MissedSkip Missed = "skip"
	MissedOne  Missed = "one"
	MissedAll  Missed = "all"
)

// Overlap chooses what to do with a tick that comes before the task of the previous tick has finished.
type Overlap string

// OverlapAllow fires the tick, OverlapSkip skips it, and OverlapQueue lets it wait for that task. If more ticks come
// while one waits, only the last one of these is fired, or with MissedAll the last Schedule.MaxMissed ticks.
const (
	OverlapAllow Overlap = "allow"
	OverlapSkip  Overlap = "skip"
	OverlapQueue Overlap = "queue"
)

// ScheduleByHand is the Owner of a schedule that a person or a program made, not a manifest.
const ScheduleByHand = "hand"

// pluginOwner is the prefix of the Owner of schedules in a plugin's manifest.
const pluginOwner = "plugin "

// OwnedByPlugin returns the Owner of the schedules in a plugin's manifest.
func OwnedByPlugin(plugin string) string { return pluginOwner + plugin }

// PluginOwner returns the plugin that owns the schedule, or "" if no plugin does.
func (s *Schedule) PluginOwner() string {
	plugin, owned := strings.CutPrefix(s.Owner, pluginOwner)
	if !owned {
		return ""
	}
	return plugin
}

// Same reports whether another schedule has the same ID, owner and definition.
func (s *Schedule) Same(other *Schedule) bool {
	a, b := s.WithDefaults(), other.WithDefaults()
	return a.ID == b.ID && a.Owner == b.Owner && a.Definition() == b.Definition()
}

// Schedule is a recurring task. At each tick of its cron expression, one task is enqueued. The task's ID is
// "SCHEDULE@SECOND", where SECOND is the Unix time of the tick. This package only stores schedules. Hosts compute the
// ticks, and check the expression before it is stored.
type Schedule struct {
	ID       string // 1 to 100 letters, digits, ".", "_" and "-"
	Owner    string // who made the schedule; nobody else can redefine it (default ScheduleByHand)
	Queue    string
	Cron     string // an expression with five or six fields, a word such as @daily, or @every and a duration
	Timezone string // a name such as Europe/Berlin (default UTC)
	// Parameters are the parameters of each task, at most 64 KiB. Options can set only Labels, Retry, Timeout, Priority
	// and the fairness and concurrency keys. The Key of each task is the schedule's ID.
	Parameters []byte
	Sealed     error // of a schedule that was read: why Parameters cannot be decrypted, and are nil
	Options    Options
	Missed     Missed        // which missed ticks are fired (default MissedOne)
	MaxMissed  int           // maximum number of ticks that MissedAll fires (default 100, at most the constant MaxMissed)
	Window     time.Duration // missed ticks older than this are never fired (default 0: no tick is too old)
	Overlap    Overlap       // what happens to overlapping ticks (default OverlapAllow)

	ScheduleState
}

// ScheduleState is the part of a schedule that scripts and hosts update. All times are by Redis's clock.
type ScheduleState struct {
	Paused           time.Time // when the schedule was paused; zero if it is not paused
	Created, Updated time.Time
	Since            time.Time // earlier ticks do not count; set by creation, resume and a change of Cron or Timezone
	Next             time.Time // the next tick; zero until a host has computed it
	Last             time.Time // the last tick that was fired
	LastID           string    // ID of the task of that tick
	Fired            int64     // number of ticks that made a task
	Skipped          int64     // number of ticks skipped because the previous task had not finished
	MissedTicks      int64     // number of ticks that came while no host was there, and were not fired
	// Absent is the time since which no host has served the plugin that owns the schedule. Meanwhile, ticks are not
	// fired. Absent is zero if a host serves the plugin, or no plugin owns the schedule.
	Absent time.Time
	// Waits is the tick that waits for the previous task, or for room in the queue. It does not count as missed. It is
	// zero if no tick waits.
	Waits time.Time

	// Revision and Stored (the text of Next in Redis) let listen.Fleet.Tick check that no other host has ended the same
	// tick.
	Revision, Stored string
}

var validSchedule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// ValidSchedule checks the ID of a schedule.
func ValidSchedule(id string) error {
	if !validSchedule.MatchString(id) {
		return fmt.Errorf("%w: schedule %q: use 1 to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
			ErrInvalid, id)
	}
	return nil
}

// WithDefaults returns the schedule with its defaults, as PutSchedule stores it.
func (s Schedule) WithDefaults() Schedule {
	s.Owner = cmp.Or(s.Owner, ScheduleByHand)
	s.Missed = cmp.Or(s.Missed, MissedOne)
	s.Overlap = cmp.Or(s.Overlap, OverlapAllow)
	if s.Missed == MissedAll {
		s.MaxMissed = cmp.Or(s.MaxMissed, 100)
	}
	return s
}

// Validate checks everything but the meaning of the cron expression and the time zone, which hosts and the command line
// check.
func (s Schedule) Validate() error {
	s = s.WithDefaults()
	o := s.Options
	rest := o
	rest.Labels, rest.Retry, rest.Timeout, rest.Priority = nil, Retry{}, 0, nil
	taskKeys{}.apply(&rest)
	switch {
	case ValidSchedule(s.ID) != nil:
		return ValidSchedule(s.ID)
	case ValidTarget(s.Queue) != nil:
		return fmt.Errorf("schedule %s: %w", s.ID, ValidTarget(s.Queue))
	case s.Cron == "" || len(s.Cron) > maxScheduleCron || !utf8.ValidString(s.Cron):
		return fmt.Errorf("%w: schedule %s: cron expression %.20q: use 1 to %d bytes of UTF-8, such as \"30 6 * * *\"",
			ErrInvalid, s.ID, s.Cron, maxScheduleCron)
	case len(s.Timezone) > maxScheduleCron || !utf8.ValidString(s.Timezone):
		return fmt.Errorf("%w: schedule %s: time zone %.20q: use at most %d bytes of UTF-8, such as \"Europe/Berlin\"",
			ErrInvalid, s.ID, s.Timezone, maxScheduleCron)
	case len(s.Parameters) > maxScheduleParameters:
		return fmt.Errorf("%w: schedule %s: parameters of %d bytes: use at most %d", ErrInvalid, s.ID, len(s.Parameters),
			maxScheduleParameters)
	case !slices.Contains([]Missed{MissedSkip, MissedOne, MissedAll}, s.Missed):
		return fmt.Errorf("%w: schedule %s: missed %q: use %s, %s or %s", ErrInvalid, s.ID, s.Missed, MissedSkip, MissedOne,
			MissedAll)
	case s.MaxMissed < 0 || s.MaxMissed > MaxMissed || s.MaxMissed > 0 && s.Missed != MissedAll:
		return fmt.Errorf("%w: schedule %s: max missed %d: use 1 to %d, with missed %s", ErrInvalid, s.ID, s.MaxMissed,
			MaxMissed, MissedAll)
	case s.Window < 0 || s.Window > store.Longest:
		return fmt.Errorf("%w: schedule %s: window %s: use 1s to %s, or 0s for none", ErrInvalid, s.ID, s.Window,
			store.Longest)
	case !slices.Contains([]Overlap{OverlapAllow, OverlapSkip, OverlapQueue}, s.Overlap):
		return fmt.Errorf("%w: schedule %s: overlap %q: use %s, %s or %s", ErrInvalid, s.ID, s.Overlap, OverlapSkip,
			OverlapQueue, OverlapAllow)
	case o.metadata() > maxMetadata || !reflect.DeepEqual(rest, Options{}):
		return fmt.Errorf("%w: schedule %s: unsupported options of its tasks: use only labels and keys (of at most %d bytes), a retry policy, a timeout and a priority", ErrInvalid, s.ID, maxMetadata)
	}
	return store.Wrap("schedule "+s.ID, o.Validate())
}

// scheduleTask describes the task of a schedule. The field `task` of the schedule's hash contains it as JSON.
type scheduleTask struct {
	Parameters       string            `json:"parameters,omitempty"`
	ParametersBase64 []byte            `json:"parameters_base64,omitempty"` // for parameters that are not UTF-8
	Labels           map[string]string `json:"labels,omitempty"`
	Priority         *int              `json:"priority,omitempty"`
	Timeout          float64           `json:"timeout,omitempty"`
	MaxAttempts      int               `json:"max_attempts,omitempty"`
	MaxAge           string            `json:"max_age,omitempty"`
	Retry            json.RawMessage   `json:"retry,omitempty"`
	taskKeys
}

// fields returns the definition as fields of the schedule's hash. keys encrypt the parameters.
func (s *Schedule) fields(keys *seal.Ring) []any {
	o := s.Options
	task := scheduleTask{
		Labels: o.Labels, Priority: o.Priority, Timeout: o.Timeout.Seconds(), MaxAttempts: o.Retry.MaxAttempts,
		MaxAge: store.DurationText(o.Retry.MaxAge), taskKeys: keysOf(&o),
	}
	if policy := o.Retry.encode(); policy != "" {
		task.Retry = json.RawMessage(policy)
	}
	parameters := keys.Seal("schedule "+s.ID, s.Parameters)
	if task.Parameters = string(parameters); !utf8.Valid(parameters) || keys != nil {
		task.Parameters, task.ParametersBase64 = "", parameters
	}
	text, _ := json.Marshal(task) // it can always be encoded
	return store.AppendFields(nil, "queue", s.Queue, "cron", s.Cron, "timezone", s.Timezone, "task", string(text),
		"missed", string(s.Missed),
		"max_missed", store.Optional(s.MaxMissed > 0, strconv.Itoa(s.MaxMissed)), "window", store.DurationText(s.Window),
		"overlap", string(s.Overlap))
}

// newSchedule reads a schedule's hash. A damaged field stays zero.
func newSchedule(id string, hash map[string]string) *Schedule {
	var task scheduleTask
	_ = json.Unmarshal([]byte(hash["task"]), &task)
	moment := func(field string) time.Time { return store.ParseSeconds(hash[field]) }
	s := &Schedule{
		ID: id, Owner: hash["owner"], Queue: hash["queue"], Cron: hash["cron"], Timezone: hash["timezone"],
		Options: Options{
			Labels: task.Labels, Priority: task.Priority, Timeout: store.ParseDuration(task.Timeout),
			Retry: ParseRetry(string(task.Retry), strconv.Itoa(task.MaxAttempts), task.MaxAge),
		},
		Missed: Missed(hash["missed"]), MaxMissed: int(store.AsInt(hash["max_missed"])),
		Window: store.SecondsDuration(hash["window"]), Overlap: Overlap(hash["overlap"]),
		ScheduleState: ScheduleState{
			Paused: moment("paused"), Created: moment("created"), Updated: moment("updated"), Since: moment("since"),
			Next: moment("next"), Last: moment("last"),
			LastID: hash["last_id"], Fired: store.AsInt(hash["fired"]), Skipped: store.AsInt(hash["skipped"]),
			MissedTicks: store.AsInt(hash["missed_ticks"]),
			Absent:      moment("absent"), Waits: moment("waits"), Revision: hash["revision"], Stored: hash["next"],
		},
	}
	task.apply(&s.Options)
	if s.Parameters = task.ParametersBase64; s.Parameters == nil {
		s.Parameters = []byte(task.Parameters)
	}
	return s
}

// Put is the result of storing a schedule or subscription.
type Put string

// The results of storing.
const (
	PutNew     Put = "new"
	PutChanged Put = "changed"
	PutSame    Put = "same" // it exists with the same definition
	PutKept    Put = "kept" // it exists with another definition, and was to be stored only if missing
)

// PutSchedule stores a schedule, or changes the existing one with its ID. Hosts apply a change within a second. The
// schedule's state stays, unless the expression or the time zone changes. If missing is true, an existing schedule is
// not changed. The error is ErrOwned if an existing schedule has another owner.
func (c *Client) PutSchedule(ctx context.Context, s Schedule, missing bool) (Put, error) {
	return c.putSchedule(ctx, "", s, missing)
}

// putSchedule is PutSchedule. sync is the token of the SyncSchedules that the call is a part of, or "".
func (c *Client) putSchedule(ctx context.Context, sync string, s Schedule, missing bool) (Put, error) {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return "", err
	}
	answer, err := c.schedule(ctx, sync, s.ID, s.Owner, "put",
		append([]any{MaxSchedules, store.Optional(missing, "1")}, s.fields(c.store.Seal)...)...)
	return Put(answer), err
}

// PauseSchedule stops the ticks of a schedule until ResumeSchedule. The ticks in between are never fired.
func (c *Client) PauseSchedule(ctx context.Context, id string) error {
	_, err := c.schedule(ctx, "", id, "", "pause")
	return err
}

// ResumeSchedule ends a pause.
func (c *Client) ResumeSchedule(ctx context.Context, id string) error {
	_, err := c.schedule(ctx, "", id, "", "resume")
	return err
}

// DeleteSchedule deletes a schedule of this owner; owner "" means any owner. The schedule's tasks stay.
func (c *Client) DeleteSchedule(ctx context.Context, id, owner string) error {
	_, err := c.schedule(ctx, "", id, owner, "delete")
	return err
}

// schedule runs schedule.lua with the action what. sync is the token of the SyncSchedules that the call is a part of,
// or "".
func (c *Client) schedule(ctx context.Context, sync, id, owner, what string, args ...any) (string, error) {
	if err := ValidSchedule(id); err != nil {
		return "", err
	}
	reply, err := c.store.Eval(ctx, store.NewCall("schedule", c.store.Keys.Ticks(),
		append([]any{c.store.Clock, id, owner, what, sync}, args...)...))
	answer := store.AsString(reply)
	other, owned := strings.CutPrefix(answer, "owned ")
	switch {
	case redis.HasErrorPrefix(err, "MANYQUEUES"):
		err = manyQueues(err)
	case err != nil:
		err = cmp.Or(c.store.Over(err), err)
	case owned:
		err = fmt.Errorf("%w: %s", ErrOwned, other)
	case answer == "none":
		err = ErrNoSchedule
	case answer == "overtaken":
		err = ErrOvertaken
	case answer == "full":
		err = ErrManySchedules
	}
	return answer, store.Wrap(fmt.Sprintf("%s schedule %s", what, id), err)
}

// Schedule reads a schedule. The error is ErrNoSchedule if no schedule has this ID.
func (c *Client) Schedule(ctx context.Context, id string) (*Schedule, error) {
	if err := ValidSchedule(id); err != nil {
		return nil, err
	}
	found, err := c.readSchedules(ctx, []string{id})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("schedule %s: %w", id, ErrNoSchedule)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// scheduleBytes is the maximum size of the schedules that one call reads, in bytes, unless a single one is larger.
// Parameters are stored as JSON, in which they can be six times as long.
const scheduleBytes = 4 << 20

// scheduleBlock returns the first of ids: as many as one call of readSchedules should read, and at least one.
func (c *Client) scheduleBlock(ctx context.Context, ids []string) ([]string, error) {
	sizes, err := store.Pipelined(ctx, c.store, ids, func(p redis.Pipeliner, id string) *redis.IntCmd {
		return p.HStrLen(ctx, c.store.Keys.Schedule(id), "task")
	})
	if err != nil {
		return nil, store.Wrap("read sizes of schedules", err)
	}
	total := int64(0)
	for i, size := range sizes {
		if total += size.Val(); total > scheduleBytes {
			return ids[:max(1, i)], nil
		}
	}
	return ids, nil
}

func (c *Client) readSchedules(ctx context.Context, ids []string) ([]*Schedule, error) {
	cmds, err := store.PipelinedBy(ctx, c.store, store.LargeItems, ids,
		func(p redis.Pipeliner, id string) *redis.MapStringStringCmd {
			return p.HGetAll(ctx, c.store.Keys.Schedule(id))
		})
	var found []*Schedule
	for i, cmd := range cmds {
		if hash := cmd.Val(); len(hash) > 0 {
			s := newSchedule(ids[i], hash)
			opened, err := c.store.Seal.Open(s.Parameters)
			if err != nil {
				s.Sealed = err
			}
			s.Parameters = opened
			found = append(found, s)
		}
	}
	return found, store.Wrap("read schedules", err)
}

// Spec makes the task of a tick; id is the task's ID.
func (s *Schedule) Spec(id string) *Spec {
	spec := &Spec{Parameters: s.Parameters, Options: s.Options}
	spec.ID, spec.Key = id, s.ID
	return spec
}

// syncTime is the maximum duration of SyncSchedules: after it, the token of the sync expires.
const syncTime = time.Hour

// ScheduleSync is the result of SyncSchedules: the IDs of the schedules by what was done to them.
type ScheduleSync struct {
	New, Changed, Same, Deleted []string
}

// SyncSchedules stores the given schedules for an owner, and deletes the owner's other schedules. If one is invalid,
// nothing is changed. After another error, some schedules may have been stored or deleted, and the same call completes
// the rest. Of two concurrent calls, the one that began last wins; the other one returns ErrOvertaken. If dry is true,
// nothing is changed.
func (c *Client) SyncSchedules(
	ctx context.Context, owner string, schedules []Schedule, dry bool,
) (ScheduleSync, error) {
	var sync ScheduleSync
	listed := make(map[string]bool, len(schedules))
	for i := range schedules {
		schedules[i].Owner = owner
		if err := schedules[i].Validate(); err != nil {
			return sync, err
		}
		if listed[schedules[i].ID] {
			return sync, fmt.Errorf("%w: schedule %s is in the list twice: keep one of them", ErrInvalid, schedules[i].ID)
		}
		listed[schedules[i].ID] = true
	}
	token := NewID()
	// The token is set before the schedules are read. From then on, earlier syncs of the owner can store nothing more.
	// What they stored before is among the schedules that are read, and if necessary deleted, below.
	if !dry {
		if err := c.store.RDB.Set(ctx, c.store.Keys.Duty("sync_"+owner), token, syncTime).Err(); err != nil {
			return sync, store.Wrap("begin the sync of schedules", err)
		}
	}
	stored, err := c.ScheduleHeads(ctx)
	if err != nil {
		return sync, err
	}
	existing := make(map[string]*Schedule, len(stored))
	for _, s := range stored {
		if existing[s.ID] = s; listed[s.ID] && s.Owner != owner {
			return sync, fmt.Errorf("schedule %s: %w: %s", s.ID, ErrOwned, s.Owner)
		}
	}
	for _, s := range schedules {
		put, err := PutNew, error(nil)
		switch {
		case !dry:
			put, err = c.putSchedule(ctx, token, s, false)
		case existing[s.ID] != nil:
			put, err = c.compare(ctx, s)
		}
		if err != nil {
			return sync, err
		}
		to := map[Put]*[]string{PutNew: &sync.New, PutChanged: &sync.Changed, PutSame: &sync.Same}[put]
		*to = append(*to, s.ID)
	}
	for _, s := range stored {
		if s.Owner != owner || listed[s.ID] {
			continue
		}
		if !dry {
			if _, err := c.schedule(ctx, token, s.ID, owner, "delete"); err != nil && !errors.Is(err, ErrNoSchedule) {
				return sync, err
			}
		}
		sync.Deleted = append(sync.Deleted, s.ID)
	}
	return sync, nil
}

// compare returns the result that storing a schedule would have.
func (c *Client) compare(ctx context.Context, s Schedule) (Put, error) {
	old, err := c.Schedule(ctx, s.ID)
	switch {
	case errors.Is(err, ErrNoSchedule): // deleted meanwhile
		return PutNew, nil
	case err != nil:
		return "", err
	case s.Same(old):
		return PutSame, nil
	}
	return PutChanged, nil
}

// ReadSchedules reads the schedules of the first of ids: at least one, and fewer than all if the schedules are large.
// read is the number of IDs that it looked up. Schedules that do not exist are left out of found.
func (c *Client) ReadSchedules(ctx context.Context, ids []string) (found []*Schedule, read int, err error) {
	ids, err = c.scheduleBlock(ctx, ids)
	if err == nil {
		found, err = c.readSchedules(ctx, ids)
	}
	return found, len(ids), err
}

// Definition returns a digest of everything in the schedule that a manifest can set.
func (s *Schedule) Definition() string {
	d := s.WithDefaults()
	return definition(d.fields(nil)...)
}

func definition(parts ...any) string {
	text, _ := json.Marshal(parts) // texts can always be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// ScheduleHeads lists the tenant's schedules, sorted by ID, without their Parameters and Options.
func (c *Client) ScheduleHeads(ctx context.Context) ([]*Schedule, error) {
	ids, err := c.store.ScheduleIDs(ctx, MaxSchedules)
	if err != nil {
		return nil, err
	}
	fields := []string{
		"owner", "queue", "cron", "timezone", "missed", "max_missed", "window", "overlap", "paused", "created", "updated",
		"since", "next",
		"last", "last_id", "fired", "skipped", "missed_ticks", "absent", "waits", "revision",
	}
	cmds, err := store.Pipelined(ctx, c.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, c.store.Keys.Schedule(id), fields...)
	})
	var heads []*Schedule
	for i, cmd := range cmds {
		if hash := store.HashOf(fields, cmd.Val()); len(hash) > 0 {
			heads = append(heads, newSchedule(ids[i], hash))
		}
	}
	return heads, store.Wrap("read schedules", err)
}
