// Package cron computes when a recurring task is due: the ticks of a cron expression in a time zone.
//
// A library reads the expression and walks the calendar, in which every day has 24 hours. This package maps that
// calendar to the clock of the zone, so that all expressions follow the same rules where clocks change:
//
//	                     the hour is left out in spring      the hour comes twice in autumn
//	names hours          one tick, when the hour is over     a tick in the first of the two
//	hour is *            no tick: the others go on           ticks in both
//	@every               no difference: it counts elapsed time
package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a container may have no zones

	library "github.com/netresearch/go-cron"

	"github.com/quern-project/quern/runtime/units"
)

// The bounds of an expression and of @every.
const (
	maxExpression = 256
	minEvery      = time.Second
	maxEvery      = 365 * 24 * time.Hour
)

// fields are the parser's options: five fields, or six with the seconds first; L, nW and d#n; and words like @daily.
const fields = library.SecondOptional | library.Minute | library.Hour | library.Dom | library.Month | library.Dow |
	library.Descriptor | library.Extended | library.DowOrDom

// Rule is a checked cron expression in a time zone. It does not change.
type Rule struct {
	every    time.Duration    // the period of @every; 0 for other expressions
	calendar library.Schedule // computes ticks in UTC, as if UTC showed the zone's time
	zone     *time.Location
	hours    bool // the expression names hours: see the table above
}

// Parse reads an expression: five fields (minute, hour, day of month, month, day of week), six with the seconds
// first, a word such as @daily, or @every and a duration. The zone is a name such as Europe/Berlin; "" is UTC. An
// error says what is wrong and what would be right.
func Parse(expression, zone string) (*Rule, error) {
	location, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(expression)
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("the cron expression is empty: %s", example)
	case len(expression) > maxExpression:
		return nil, fmt.Errorf("the cron expression has %d bytes: use at most %d", len(expression), maxExpression)
	case strings.Contains(words[0], "="): // the library would take a zone here
		return nil, fmt.Errorf("cron expression %q begins with a zone: give the zone as the schedule's time zone", expression)
	case words[0] == "@every":
		return parseEvery(expression, strings.Join(words[1:], ""))
	}
	if n := len(words); n < 5 && words[0][0] != '@' || n > 6 {
		return nil, fmt.Errorf("cron expression %q: expected 5 or 6 fields, found %d: %s", expression, n, example)
	}
	calendar, err := library.MustNewParser(fields).Parse(strings.Join(words, " "))
	if err != nil {
		if wrong := wrongField(words); wrong != "" {
			return nil, fmt.Errorf("cron expression %q: %s", expression, wrong)
		}
		return nil, fmt.Errorf("cron expression %q: %w: %s", expression, err, example)
	}
	r := &Rule{calendar: calendar, zone: location}
	if len(words) >= 5 {
		hour := words[len(words)-4]
		r.hours = hour != "*" && hour != "?" && hour != "*/1"
	} else {
		r.hours = words[0] != "@hourly"
	}
	if r.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron expression %q never comes: no such day exists", expression)
	}
	return r, nil
}

// fieldNames are the fields of an expression with seconds, and what each may be.
var fieldNames = [...][2]string{ //nolint:gochecknoglobals // read only
	{"the second", "use 0 to 59"},
	{"the minute", "use 0 to 59"},
	{"the hour", "use 0 to 23"},
	{"the day of the month", "use 1 to 31"},
	{"the month", "use 1 to 12 or JAN to DEC"},
	{"the day of the week", "use 0 to 6 or SUN to SAT"},
}

// wrongField says which field of a refused expression is wrong: the one with which an expression of * is refused, too.
// It returns "" if there is none.
func wrongField(words []string) string {
	if len(words) != 5 && len(words) != 6 {
		return ""
	}
	for i, word := range words {
		alone := strings.Fields(strings.Repeat("* ", len(words)))
		alone[i] = word
		field := fieldNames[i+len(fieldNames)-len(words)]
		if _, err := library.MustNewParser(fields).Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("%s: %s: %s", field[0], strings.TrimSuffix(err.Error(), fmt.Sprintf(": %q", word)), field[1])
		}
	}
	return ""
}

const example = `use minute, hour, day, month and day of the week, such as "30 6 * * MON-FRI", with a sixth field in front for seconds; or @daily, or @every 90s`

func parseEvery(expression, text string) (*Rule, error) {
	every, err := units.ParseDuration(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cron expression %q: %q is no duration: use one such as @every 90s, @every 1h30m or @every 7d",
			expression, text)
	case every < minEvery || every > maxEvery || every%time.Second != 0:
		return nil, fmt.Errorf("cron expression %q: use whole seconds, from @every 1s to @every %dh", expression,
			int(maxEvery.Hours()))
	}
	return &Rule{every: every}, nil
}

// Zone finds a time zone by its name; "" is UTC. "Local", the zone of the machine, is refused, since it can differ from
// host to host.
func Zone(name string) (*time.Location, error) {
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("unknown time zone %q: use a name such as Europe/Berlin, America/New_York or UTC", name)
	}
	return location, nil
}

// Next returns the first tick later than after, or zero if no tick comes for years. A tick is a whole second, in the
// rule's zone. With @every, the tick is the sum of after and the period, in the zone of after.
func (r *Rule) Next(after time.Time) time.Time {
	after = after.Truncate(time.Second)
	if r.every > 0 {
		return after.Add(r.every)
	}
	// The zone's clock runs evenly between two changes. The loop looks for a tick in one such part after the other.
	at := after.In(r.zone)
	from := wall(at, offset(at))
	for range maxParts {
		start, end := at.ZoneBounds()
		shift := offset(at)
		if r.hours && !start.IsZero() {
			before := wall(start, offset(start.Add(-time.Second))).Add(-time.Second)
			if before.After(from) { // the clock was set back
				from = before
			}
		}
		next := r.calendar.Next(from)
		switch {
		case next.IsZero():
			return time.Time{}
		case end.IsZero() || next.Before(wall(end, shift)):
			return next.Add(-shift).In(r.zone)
		case r.hours && next.Before(wall(end, offset(end))): // in the hour that is left out
			return end
		}
		at, from = end, wall(end, offset(end)).Add(-time.Second)
	}
	return time.Time{}
}

// Skip returns the first tick later than after in the series of ticks that begins with tick, without computing the
// ticks between them.
func (r *Rule) Skip(tick, after time.Time) time.Time {
	switch {
	case after.Before(tick):
		return tick
	case r.every == 0:
		return r.Next(after)
	default:
		return after.Add(r.every - after.Sub(tick)%r.every)
	}
}

// maxParts bounds the parts, from one clock change to the next, in which Next looks. It is enough for the rarest day,
// 29 February on a certain day of the week, in a zone that changes its clock four times a year.
const maxParts = 200

// offset returns how far the zone's clock is ahead of UTC at a time.
func offset(at time.Time) time.Duration {
	_, seconds := at.Zone()
	return time.Duration(seconds) * time.Second
}

// wall returns what a clock that is ahead of UTC by shift shows at a time, as if it were a time in UTC.
func wall(at time.Time, shift time.Duration) time.Time { return at.UTC().Add(shift) }
