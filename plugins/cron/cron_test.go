package cron_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/plugins/cron"
)

const layout = "2006-01-02T15:04:05Z07:00"

func TestNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ expression, zone, after, ticks string }{
		"every minute":          {"* * * * *", "", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z 2026-01-01T00:02:00Z"},
		"seconds":               {"*/20 * * * * *", "", "2026-01-01T00:00:30.5Z", "2026-01-01T00:00:40Z 2026-01-01T00:01:00Z"},
		"weekdays":              {"30 6 * * MON-FRI", "Europe/Berlin", "2026-01-02T12:00:00Z", "2026-01-05T06:30:00+01:00"},
		"a day or a weekday":    {"0 0 1 * MON", "", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z 2026-10-12T00:00:00Z 2026-10-19T00:00:00Z 2026-10-26T00:00:00Z 2026-11-01T00:00:00Z"},
		"the last day":          {"0 0 L * *", "", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z 2026-03-31T00:00:00Z"},
		"the first Monday":      {"0 9 * * MON#1", "", "2026-01-01T00:00:00Z", "2026-01-05T09:00:00Z 2026-02-02T09:00:00Z"},
		"a leap day":            {"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		"over midnight":         {"0 23-1 * * ?", "", "2026-01-01T12:00:00Z", "2026-01-01T23:00:00Z 2026-01-02T00:00:00Z 2026-01-02T01:00:00Z 2026-01-02T23:00:00Z"},
		"a word":                {"@daily", "America/New_York", "2026-01-01T12:00:00Z", "2026-01-02T00:00:00-05:00"},
		"days":                  {"@every 1d", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z 2026-03-30T12:00:00Z"},
		"elapsed time":          {"@every 1h30m", "Europe/Berlin", "2026-01-01T00:00:07Z", "2026-01-01T01:30:07Z 2026-01-01T03:00:07Z"},
		"spring: named hours":   {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		"spring: many in it":    {"*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00 2026-03-30T02:20:00+02:00"},
		"spring: beside it":     {"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		"spring: every hour":    {"*/30 * * * *", "Europe/Berlin", "2026-03-29T01:10:00+01:00", "2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		"spring: elapsed time":  {"@every 1h", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z 2026-03-29T02:30:00Z"},
		"autumn: named hours":   {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		"autumn: in the second": {"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		"autumn: after it":      {"30 3 * * *", "Europe/Berlin", "2026-10-25T02:10:00+02:00", "2026-10-25T03:30:00+01:00"},
		"autumn: every hour":    {"*/30 * * * *", "Europe/Berlin", "2026-10-25T02:10:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00"},
		"no midnight":           {"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		"half an hour":          {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		"half an hour twice":    {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, err := cron.Parse(c.expression, c.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339Nano, c.after)
			if err != nil {
				t.Fatal(err)
			}
			var ticks []string
			for range strings.Fields(c.ticks) {
				at = rule.Next(at)
				ticks = append(ticks, at.Format(layout))
			}
			if got := strings.Join(ticks, " "); got != c.ticks {
				t.Errorf("%s in %q:\n got %s\nwant %s", c.expression, c.zone, got, c.ticks)
			}
		})
	}
}

// Whatever the expression and the zone: ticks go forward, none is left out between two of them, and what the clock of the zone
// shows at a tick is what the expression names, unless that hour is left out.
func TestTicksAreInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		expression := rapid.SampledFrom([]string{"*/15 * * * *", "30 2 * * *", "0 1,2,3 * * *", "*/7 0-4 * * *", "0 0 * * *", "45 23 * * SUN"}).Draw(r, "expression")
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca", "UTC", "Asia/Kolkata"}).Draw(r, "zone")
		rule, err := cron.Parse(expression, zone)
		if err != nil {
			r.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_500_000_000, 1_800_000_000).Draw(r, "after"), 0)
		first := rule.Next(at)
		if !first.After(at) {
			r.Fatalf("%s in %s: %s follows %s", expression, zone, first, at)
		}
		local, err := cron.Zone(zone)
		if err != nil {
			r.Fatal(err)
		}
		shown := first.In(local)
		_, before := shown.AddDate(0, 0, -1).Zone()
		if _, after := shown.AddDate(0, 0, 1).Zone(); before == after { // no clock is set about then
			wall := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, time.UTC)
			if plain, err := cron.Parse(expression, ""); err != nil || !plain.Next(wall.Add(-time.Second)).Equal(wall) {
				r.Fatalf("%s in %s: the clock shows %s (%v)", expression, zone, shown, err)
			}
		}
		between := at.Add(time.Duration(rapid.Int64Range(0, int64(first.Sub(at)/time.Second)-1).Draw(r, "seconds")) * time.Second)
		if again := rule.Next(between); !again.Equal(first) {
			r.Fatalf("%s in %s: after %s comes %s, but after %s %s", expression, zone, at, first, between, again)
		}
	})
}

func TestErrParse(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                             "is empty",
		"* * * *":                      "expected 5 or 6 fields, found 4: use minute",
		"61 * * * *":                   "the minute: end of range (61) above maximum (59): use 0 to 59",
		"@weekl":                       "unrecognized descriptor",
		"@reboot":                      "unrecognized descriptor",
		"TZ=Europe/Berlin 0 0 * * *":   "give the zone as the schedule's time zone",
		"CRON_TZ=UTC":                  "give the zone as the schedule's time zone",
		"0 0 30 2 *":                   "never comes",
		"@every":                       "is no duration",
		"@every 100ms":                 "whole seconds",
		"@every 1500ms":                "whole seconds",
		"@every -1s":                   "whole seconds",
		"@every 9000h":                 "whole seconds",
		strings.Repeat("1,", 200):      "at most 256",
		"*/0 * * * *":                  "positive number",
		"0 0 * * * * *":                "expected 5 or 6 fields, found 7: use minute",
		"99999999999999999999 * * * *": "99999999999999999999",
	} {
		if _, err := cron.Parse(expression, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", expression, err, want)
		}
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../etc/passwd", "Europe/berlin\x00"} {
		if _, err := cron.Parse("* * * * *", zone); err == nil || !strings.Contains(err.Error(), "unknown time zone") {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	tick := time.Unix(1_700_000_000, 0)
	for _, expression := range []string{"@every 7m", "*/7 * * * *"} {
		rule, err := cron.Parse(expression, "")
		if err != nil {
			t.Fatal(err)
		}
		after := tick.Add(1000 * time.Hour)
		walked := tick
		for !walked.After(after) {
			walked = rule.Next(walked)
		}
		if got := rule.Skip(tick, after); !got.Equal(walked) {
			t.Errorf("%s: %s, want %s", expression, got, walked)
		}
		if got := rule.Skip(tick, tick.Add(-time.Minute)); !got.Equal(tick) {
			t.Errorf("%s: from a minute before the tick %s on: %s", expression, tick, got)
		}
	}
}

// No text makes the parser, or the search for the next tick, panic or go on for ever.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"* * * * *", "0 0 L * MON#1", "@every 1h", "*/5 1-3,7 LW * ?", "@daily", "H * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := cron.Parse(text, "Europe/Berlin")
		if err != nil {
			return
		}
		at := time.Unix(1_774_000_000, 0)
		for range 3 {
			next := rule.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q: %s follows %s", text, next, at)
			}
			at = next
		}
	})
}
