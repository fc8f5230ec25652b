package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/plugins/strictyaml"
)

// Schedule is a recurring task, defined by the section schedule of a manifest or by a file of schedules. A zero field
// is not set.
type Schedule struct {
	// Name is the ID of a schedule in a file of schedules. In a manifest, the ID is the plugin's name, a dot and
	// Name, or only the plugin's name if Name is "".
	Name string
	// Queue is the queue that gets the tasks. Default, in a manifest: the first queue that the plugin serves.
	Queue string
	// Cron is a checked expression. Timezone names the time zone of its hours and days. Default UTC.
	Cron, Timezone string
	// Parameters are the parameters of each task.
	Parameters []byte
	// Missed says which of the ticks that came while no host ran are made up for: MissedSkip (none), MissedOne (the last
	// one) or MissedAll (the last MaxMissed).
	Missed    string
	MaxMissed int
	// Window is the maximum age of a missed tick that is made up for.
	Window time.Duration
	// Overlap says what becomes of a tick that comes before the previous tick's task has finished: OverlapSkip (it is
	// skipped), OverlapQueue (it waits) or OverlapAllow (it is fired).
	Overlap string
	// Priority is the priority of the tasks, 0 to 100; nil if it is not set.
	Priority *int
	// Timeout, MaxAttempts and MaxAge replace, for these tasks, the values of limits and retry.
	Timeout     time.Duration
	MaxAttempts int
	MaxAge      time.Duration
	TaskKeys
}

// The words of Schedule.Missed and Schedule.Overlap.
const (
	MissedSkip = "skip"
	MissedOne  = "one"
	MissedAll  = "all"

	OverlapSkip  = "skip"
	OverlapQueue = "queue"
	OverlapAllow = "allow"
)

const (
	maxSchedules   = 100     // schedules of one plugin
	maxScheduled   = 10_000  // schedules of a file of schedules
	maxSchedule    = 8 << 20 // bytes of a file of schedules
	maxMissed      = 1000
	maxTaskPayload = 64 << 10 // bytes of the parameters of a schedule's task
	maxScheduleID  = 100      // bytes of an ID

	schedulePattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`
)

// ID returns the ID that the schedule has as a schedule of plugin.
func (s *Schedule) ID(plugin string) string {
	return strings.TrimSuffix(plugin+"."+s.Name, ".")
}

// ParseSchedules parses a file of schedules. It has one key, schedules: a list in which each entry has a name, which
// is its ID, and a queue. An *Error lists all problems.
func ParseSchedules(name string, data []byte) (all []Schedule, err error) {
	d := newDecoder(name)
	d.most = strictyaml.Limits{Bytes: maxSchedule, Values: maxFileValues}
	d.keys = []key{{"schedules", "", value{
		read:   func(d *decoder, n node) { all = d.schedules(n, maxScheduled, true) },
		schema: &property{},
	}}}
	if root, ok := d.root(data, "write schedules: [] for none"); ok {
		d.section(root, d.keys)
		if _, there := d.values["schedules"]; !there && len(d.problems) == 0 {
			d.wrong(root, "has no schedules", "write schedules: and a list, [] for none")
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return all, nil
}

func (s *Schedule) keys() []key {
	return append([]key{
		{
			"name", "Tells several schedules of a plugin apart: the ID is PLUGIN.NAME, or PLUGIN without a name.",
			checkedValue(&s.Name, textProperty(schedulePattern, "nightly"), (*decoder).scheduleName),
		},
		{"cron", "When: minute, hour, day of the month, month and day of the week; or six fields with the seconds first, @daily, or @every 90s.", textValue(&s.Cron, "write an expression in quotes, such as \"30 6 * * *\"", stringProperty("", "30 6 * * MON-FRI", "@every 90s")).
			require(`write when it is due, such as cron: "30 6 * * *"`)},
		{"timezone", "By whose clock. Default UTC.", textValue(&s.Timezone, "write a name such as Europe/Berlin",
			stringProperty("", "Europe/Berlin"))},
		{
			"queue", "The queue that gets the tasks, one that the plugin serves. Default the first of them.",
			wordValue(&s.Queue, "mail"),
		},
		{"parameters", "The parameters of each task: the text of a string; of any other value its JSON.", value{
			read: func(d *decoder, n node) { s.Parameters = d.payload(n) }, schema: &property{},
		}},
		{"missed", "What becomes of ticks that come while no host runs: none, the last one, or the last max_missed are fired. Default one.", choiceValue(&s.Missed, MissedSkip, MissedOne, MissedAll)},
		{"max_missed", "How many, with missed: all. Default 100.", countValue(&s.MaxMissed, maxMissed, "100")},
		{
			"window", "How old a missed tick may be that is fired. Default no limit.",
			durationValue(&s.Window, "no limit", "1h"),
		},
		{"overlap", "What becomes of a tick that comes before the task of the one before has finished: it is skipped, waits for it, or is fired. Default allow.", choiceValue(&s.Overlap, OverlapSkip, OverlapQueue, OverlapAllow)},
		{
			"priority", "Of the tasks, 0 to 100. Default 50.",
			value{schema: numberProperty(0, 100), read: func(d *decoder, n node) {
				var priority int
				before := len(d.problems)
				integerValue(&priority, 0, 100, "write a whole number from 0 to 100, or leave the key out for 50").read(d, n)
				if len(d.problems) == before {
					s.Priority = &priority
				}
			}},
		},
		{
			"timeout", "The longest time of one attempt. Default that of limits.",
			durationValue(&s.Timeout, "that of limits", "10m"),
		},
		{
			"max_attempts", "The number of attempts, or unlimited. Default that of retry.",
			attemptsValue(&s.MaxAttempts, maxTries),
		},
		{
			"max_age", "How long after its tick a task may begin an attempt. Default that of retry.",
			durationValue(&s.MaxAge, "that of retry", "1h"),
		},
	}, s.TaskKeys.keys()...)
}

const scheduleRule = "letters, digits, ., _ and -, 100 at most"

// isSchedule reports whether a text is a valid ID of a schedule.
func isSchedule(id string) bool {
	return id != "" && len(id) <= maxScheduleID && strings.Trim(id[:1], "._-") != "" && isSecret("_"+id)
}

func (d *decoder) scheduleName(n node) bool {
	ok := d.text(n, "write "+scheduleRule)
	if ok && !isSchedule(n.Value) {
		d.bad(n, "is no name of a schedule", "write "+scheduleRule)
		return false
	}
	return ok
}

// schedules reads a list of at most limit schedules. If file is true, the list is in a file of schedules, not in a
// manifest, and each schedule must have a name and a queue.
func (d *decoder) schedules(n node, limit int, file bool) (all []Schedule) {
	names := make(map[string]node)
	example := `[{cron: "30 6 * * *"}]`
	if file {
		example = `[{name: nightly, queue: reports, cron: "30 6 * * *"}]`
	}
	d.list(n, limit, example, "write", func(at node) {
		var s Schedule
		d.entry(at, s.keys())
		d.lonely(at)
		id, there := d.values[at.path+".name"]
		if !there {
			id = at
		}
		_, named := d.values[at.path+".queue"]
		switch {
		case at.Kind != yaml.MappingNode:
			return
		case file && !there:
			d.wrong(at, "has no name", "write one, such as name: nightly")
		case file && !named:
			d.wrong(at, "has no queue", "write which one gets the tasks, such as queue: reports")
		case !file && !isSchedule(s.ID(d.plugin)):
			d.wrong(id, "makes the ID "+Quote(s.ID(d.plugin)),
				"rename the plugin, or write a shorter name: an ID has "+scheduleRule)
		}
		if first, twice := names[s.Name]; twice {
			d.wrong(id, "has the name of "+first.path, "give each schedule a name of its own")
		} else {
			names[s.Name] = at
		}
		wrong := func(key string, err error) {
			if n, there := d.values[at.path+key]; there && err != nil {
				what, remedy := cut(err)
				d.wrong(n, what, remedy)
			}
		}
		if s.Cron != "" {
			_, err := cron.Parse(s.Cron, "")
			wrong(".cron", err)
		}
		_, err := cron.Zone(s.Timezone)
		wrong(".timezone", err)
		if most, there := d.values[at.path+".max_missed"]; there && s.Missed != MissedAll {
			d.wrong(most, "is only for missed: all", "write missed: all, or leave it out")
		}
		all = append(all, s)
	})
	return all
}

// cut splits an error into what is wrong and the remedy.
func cut(err error) (what, remedy string) {
	text := err.Error()
	if at := strings.LastIndex(text, ": use "); at >= 0 {
		return text[:at], text[at+2:]
	}
	at := strings.LastIndex(text, ": ")
	return text[:at], text[at+2:]
}

// ownSchedules checks that schedules name only queues that the plugin serves. A schedule without a queue gets the
// plugin's first queue.
func (d *decoder) ownSchedules(m *Manifest) {
	for i := range m.Schedule {
		s := &m.Schedule[i]
		n, named := d.values[fmt.Sprintf("schedule[%d].queue", i)]
		switch {
		case !named && len(m.Queues) > 0:
			s.Queue = m.Queues[0]
		case named && s.Queue != "" && !slices.Contains(m.Queues, s.Queue):
			d.wrong(n, Quote(s.Queue)+" is no queue that the plugin serves",
				"name one of "+strings.Join(m.Queues, ", ")+", or add it to queues")
		}
	}
}
