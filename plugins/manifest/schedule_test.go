package manifest

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	m, err := Parse("mail.yaml", []byte(`
queues: [mail, mail.bulk]
schedule:
- cron: 30 6 * * *
  parameters: {b: [1, true], a: x}
- {name: sweep, cron: "@every 90s", queue: mail.bulk, parameters: "007", timezone: Europe/Berlin, missed: all, max_missed: 3, window: 1h, overlap: skip,
   priority: 0, timeout: 1m, max_attempts: unlimited, max_age: 1d}
- {name: number, cron: "@daily", parameters: 1.50}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Schedule{
		{Queue: "mail", Cron: "30 6 * * *", Parameters: []byte(`{"a":"x","b":[1,true]}`)},
		{
			Name: "sweep", Queue: "mail.bulk", Cron: "@every 90s", Timezone: "Europe/Berlin", Parameters: []byte("007"), Missed: MissedAll, MaxMissed: 3,
			Window: time.Hour, Overlap: OverlapSkip, Priority: new(int), Timeout: time.Minute, MaxAttempts: Unlimited, MaxAge: 24 * time.Hour,
		},
		{Name: "number", Queue: "mail", Cron: "@daily", Parameters: []byte("1.50")},
	}
	if !reflect.DeepEqual(m.Schedule, want) {
		t.Errorf("got  %+v\nwant %+v", m.Schedule, want)
	}
	if a, b := want[0].ID("mail"), want[1].ID("mail"); a != "mail" || b != "mail.sweep" {
		t.Errorf("IDs %s, %s", a, b)
	}
}

// What is written in YAML becomes JSON without the loss of a digit, and a text or bytes as parameters stay what they are.
func TestParametersAsWritten(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"12345678901234567891234": "12345678901234567891234", "9007199254740993.0": "9007199254740993.0", "1e400": "1e400", "0.10000000000000000555": "0.10000000000000000555",
		"[1e400, 1E5, -0.0, 0x1f, 1_000, .5, +7]": "[1e400,1E5,-0.0,31,1000,0.5,7]", `["1e400", '7', 0o17]`: `["1e400","7",15]`,
		"2024-01-01": "2024-01-01", "[2024-01-01]": `["2024-01-01"]`, "{2024-01-01: 1}": `{"2024-01-01":1}`, "!!binary /9g=": "\xff\xd8",
		"[true, null, ~, \"\\u00e9<\"]": `[true,null,null,"é\u003c"]`, "hello": "hello", "true": "true",
	} {
		m, err := Parse("mail.yaml", []byte("schedule: [{cron: \"@daily\", parameters: "+yaml+"}]"))
		if err != nil || string(m.Schedule[0].Parameters) != want {
			t.Errorf("%s: %v, %+v; want %q", yaml, err, m.Schedule, want)
		}
	}
	for yaml, want := range map[string]string{
		".inf": `has the number ".inf"`, "[.nan]": `has the number ".nan"`, "[!!binary /9g=]": "has bytes", "{1: x}": `has the key "1"`, "[!mine x]": `has the tag "!mine"`,
		"99999999999999999999_0": "99999999999999999999_0",
	} {
		if _, err := Parse("mail.yaml", []byte("schedule: [{cron: \"@daily\", parameters: "+yaml+"}]")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}

func TestErrSchedule(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"schedule: [{cron: 61 * * * *}]":                                                 `mail.yaml:1: schedule[0].cron: cron expression "61 * * * *": the minute: end of range (61) above maximum (59): use 0 to 59`,
		"schedule: [{}]":                                                                 `schedule[0]: has no cron: write when it is due, such as cron: "30 6 * * *"`,
		`schedule: [{cron: "@daily", timezone: Mars}]`:                                   `schedule[0].timezone: unknown time zone "Mars": use a name such as Europe/Berlin`,
		`schedule: [{cron: "@daily", queue: other}]`:                                     `schedule[0].queue: "other" is no queue that the plugin serves: name one of mail, or add it to queues`,
		`schedule: [{cron: "@daily"}, {cron: "@hourly"}]`:                                `schedule[1]: has the name of schedule[0]: give each schedule a name of its own`,
		`schedule: [{cron: "@daily", name: "a@b"}]`:                                      `schedule[0].name: "a@b" is no name of a schedule: write letters, digits, ., _ and -, 100 at most`,
		`schedule: [{cron: "@daily", max_missed: 3}]`:                                    `schedule[0].max_missed: is only for missed: all: write missed: all, or leave it out`,
		`schedule: [{cron: "@daily", priority: 101}]`:                                    `schedule[0].priority: "101" is not allowed: write a whole number from 0 to 100, or leave the key out for 50`,
		`schedule: [{cron: "@daily", name: "` + strings.Repeat("x", 96) + `"}]`:          `schedule[0].name: makes the ID "mail.xxx`,
		`schedule: [{cron: "@daily", parameters: {1: {[a]: b}}}]`:                        `schedule[0].parameters: cannot be written as JSON`,
		`schedule: [{cron: "@daily", parameters: "` + strings.Repeat("x", 65537) + `"}]`: `schedule[0].parameters: has 65537 bytes: write at most 65536`,
	} {
		_, err := Parse("mail.yaml", []byte(data))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s\n got %v\nwant %s", data, err, want)
		}
	}
	if _, err := Parse("mä.yaml", []byte(`schedule: [{cron: "@daily"}]`)); err == nil || !strings.Contains(err.Error(), "rename the plugin") {
		t.Errorf("%v", err)
	}
}

func TestParseSchedules(t *testing.T) {
	t.Parallel()
	all, err := ParseSchedules("schedules.yaml", []byte(`schedules: [{name: nightly, queue: reports, cron: "30 6 * * *"}, {name: weekly, queue: reports, cron: "@weekly"}]`))
	if err != nil || len(all) != 2 || all[1].Name != "weekly" || all[1].Queue != "reports" {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := ParseSchedules("schedules.yaml", []byte("schedules: []")); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for data, want := range map[string]string{
		"":             "schedules.yaml: is empty: write schedules: [] for none",
		"schedule: []": `schedules.yaml:1: unknown key "schedule": did you mean "schedules"?`,
		`schedules: [{queue: q, cron: "@daily"}]`:  "schedules.yaml:1: schedules[0]: has no name: write one, such as name: nightly",
		`schedules: [{name: a, cron: "@daily"}]`:   "schedules.yaml:1: schedules[0]: has no queue: write which one gets the tasks, such as queue: reports",
		"schedules: [nightly]":                     "schedules.yaml:1: schedules[0]: expected a mapping",
		`schedules: [{name: a, queue: q, crn: x}]`: `schedules.yaml:1: schedules[0]: unknown key "crn"`,
	} {
		if _, err := ParseSchedules("schedules.yaml", []byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", data, err, want)
		}
	}
}

// No file of schedules makes the decoder panic.
func FuzzParseSchedules(f *testing.F) {
	f.Add([]byte(`schedules: [{name: a, queue: q, cron: "* * * * *", parameters: {a: &x [1], b: *x}}]`))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = ParseSchedules("schedules.yaml", data) })
}
