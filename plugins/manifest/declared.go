package manifest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/runtime/units"
)

// Declared counts the schedules and subscriptions that manifests declare. Hosts keep these schedules and subscriptions
// in Redis while they serve the plugins.
type Declared struct{ Schedules, Subscriptions int }

// Declared counts what the manifest declares.
func (m *Manifest) Declared() Declared { return Declared{len(m.Schedule), len(m.Subscribe)} }

// Plus returns d plus times × others.
func (d Declared) Plus(others Declared, times int) Declared {
	return Declared{d.Schedules + times*others.Schedules, d.Subscriptions + times*others.Subscriptions}
}

// declaredMost bounds what the manifests in a tenant's folder declare. A zero field is not set.
type declaredMost struct {
	schedules, subscriptions int           // the maximum numbers of all plugins together
	every                    time.Duration // the minimum time between two ticks of a schedule
	parameters               int64         // the maximum size of a schedule's parameters, in bytes
}

// maxDeclared is the maximum number of schedules, and also of subscriptions, that the plugins in one folder declare if
// the host sets no bound.
const maxDeclared = 1000

func (b *declaredMost) keys() []key {
	count := func(at *int) value {
		return limitValue(countValue(at, maxTries, strconv.Itoa(maxDeclared)), at, 0, strconv.Itoa)
	}
	every := limitValue(durationValue(&b.every, "1s"), &b.every, 0, time.Duration.String)
	every.limit.floor = true
	parameters := limitValue(sizeValue(&b.parameters, 1, maxTaskPayload, maxTaskPayload), &b.parameters, 0,
		units.FormatSize)
	return []key{
		{"schedule", "", section(key{"entries", "", count(&b.schedules)}, key{"every", "", every},
			key{"parameters", "", parameters})},
		{"subscribe", "", section(key{"entries", "", count(&b.subscriptions)})},
	}
}

// CheckDeclared returns an *Error if the host does not allow as many schedules and subscriptions as the manifest at
// path declares. The plugin is in the tenant's folder, or in the common folder if tenant is "". others counts the
// declarations of the other plugins in that folder.
func (m *Manifest) CheckDeclared(path string, others Declared, grants *Grants, tenant string, ceilings Ceilings) error {
	own := &TenantGrants{}
	if tenant != "" {
		own = grants.Of(tenant)
	}
	return NewError(path, m.entries(others, own, ceilings.with(own.Ceilings)))
}

func (m *Manifest) entries(others Declared, own *TenantGrants, ceilings Ceilings) (problems []Problem) {
	for _, list := range []struct {
		key       string
		has, also int
	}{{"schedule", len(m.Schedule), others.Schedules}, {"subscribe", len(m.Subscribe), others.Subscriptions}} {
		bound, sum := ceilings[list.key+".entries"], list.has+list.also
		most, where := cmp.Or(bound.value, maxDeclared), cmp.Or(bound.where, "--ceiling")
		switch {
		case list.has == 0:
		case own.Ceiling != nil && !own.declares(list.key):
			problems = append(problems, Problem{
				Field: list.key, What: fmt.Sprintf("has %d entries, and the host grants the tenant none", list.has),
				Remedy: fmt.Sprintf("remove them, or add %s: {entries: %d} to %s", list.key, sum, own.Where),
			})
		case int64(sum) > most:
			problems = append(problems, Problem{
				Field: list.key, What: fmt.Sprintf("has %d entries, with which the plugins of this folder have %d, more than the %d that the host allows", list.has, sum, most),
				Remedy: fmt.Sprintf("remove some, or raise %s.entries to %d in %s", list.key, sum, where),
			})
		}
	}
	return problems
}

// eachSchedule returns a problem for each schedule that is due too often, or has too large parameters, for the
// ceilings.
func (m *Manifest) eachSchedule(ceilings Ceilings) (problems []Problem) {
	every, parameters := ceilings["schedule.every"], ceilings["schedule.parameters"]
	for i := range m.Schedule {
		s := &m.Schedule[i]
		if least := time.Duration(every.value); least > 0 {
			if period := s.period(); period < least {
				problems = append(problems, Problem{
					Field: fmt.Sprintf("schedule[%d].cron", i), What: fmt.Sprintf("%s is due %s after the tick before, and the host allows no less than %s", Quote(s.Cron), period, least),
					Remedy: fmt.Sprintf("write a longer period, such as @every %s, or lower schedule.every to %s in %s", least, period,
						every.where),
				})
			}
		}
		if size := int64(len(s.Parameters)); parameters.value > 0 && size > parameters.value {
			problems = append(problems, Problem{
				Field: fmt.Sprintf("schedule[%d].parameters", i),
				What: fmt.Sprintf("has %d bytes, more than the %s that the host allows", size,
					units.FormatSize(parameters.value)),
				Remedy: fmt.Sprintf("write fewer, or raise schedule.parameters to %dB in %s", size, parameters.where),
			})
		}
	}
	return problems
}

// declares reports whether the tenant's entry has the key, which is schedule or subscribe. The host thereby grants such
// declarations.
func (t *TenantGrants) declares(key string) bool {
	for path := range t.Ceilings {
		if strings.HasPrefix(path, key+".") {
			return true
		}
	}
	return false
}

// periodTicks is the number of ticks that period examines. It is enough for all seconds of a minute, minutes of an
// hour, or hours of a day.
const periodTicks = 64

// period returns the shortest time between two ticks of the schedule. The result does not depend on the current time.
func (s *Schedule) period() time.Duration {
	least := time.Duration(math.MaxInt64)
	rule, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil {
		return least
	}
	at := rule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	for range periodTicks {
		next := rule.Next(at)
		if at.IsZero() || next.IsZero() {
			break
		}
		least, at = min(least, next.Sub(at)), next
	}
	return least
}

// Undeclared returns an *Error if the host keeps none of the manifest's schedules and subscriptions for the tenant,
// whatever other plugins declare; else nil. path is the manifest's path.
func (p *Permissions) Undeclared(path string) error {
	return NewError(path, slices.Clone(p.undeclared))
}
