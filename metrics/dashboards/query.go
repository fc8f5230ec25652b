package dashboards

import (
	"fmt"
	"strings"
)

// scope narrows families to what the reader has picked.
type scope string

// scopeOf is the scope of a dashboard with these variables.
func scopeOf(variables []Variable) scope {
	var matchers []string
	for _, v := range variables {
		matchers = append(matchers, fmt.Sprintf(`%s=~"$%s"`, v.Label, v.Label))
	}
	return scope(strings.Join(matchers, ","))
}

// of selects a family, with further matchers such as state="pending".
func (s scope) of(family string, matchers ...string) string {
	return family + "{" + strings.Join(append([]string{string(s)}, matchers...), ",") + "}"
}

// rate is how fast a counter grows a second, by labels.
func (s scope) rate(by, counter string, matchers ...string) string {
	return sum(by, "rate("+s.of(counter, matchers...)+"[$__rate_interval])")
}

// increase is by how much a counter has grown since the point before it in a chart, by labels: stacked or summed, the points count
// each event once. The panel has points a minute apart at least (see Panel.targets).
func (s scope) increase(by, counter string, matchers ...string) string {
	return sum(by, "increase("+s.of(counter, matchers...)+"[$__interval])")
}

// alike is a gauge of queues, which every host shows alike, summed by labels.
func (s scope) alike(by, gauge string, matchers ...string) string {
	inner := "job, tenant, queue" // each job is a fleet of its own
	if gauge == "quern_queue_depth" {
		inner += ", state"
	}
	return sum(by, "max by ("+inner+") ("+s.of(gauge, matchers...)+")")
}

// oldest is how long the oldest task of each queue waits, without queues that are paused and those of dead letters.
func (s scope) oldest() string {
	queue := func(family string) string { return "max by (job, tenant, queue) (" + s.of(family) + ")" }
	return queue("quern_queue_oldest_pending_age_seconds") + "\nunless " + queue("quern_queue_paused") + " > 0\nunless " + queue("quern_queue_dead_letters")
}

// mean is the mean of a histogram by labels: of a native one if Prometheus has it.
func (s scope) mean(by, histogram string) string {
	native := s.rate(by, histogram)
	return "histogram_sum(" + native + ") / (histogram_count(" + native + ") > 0)\nor\n" +
		s.rate(by, histogram+"_sum") + " / (" + s.rate(by, histogram+"_count") + " > 0)"
}

// quantile is one of a histogram by labels: of a native one if Prometheus has it.
func (s scope) quantile(q float64, by, histogram string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)\nor\nhistogram_quantile(%g, %s)",
		q, s.rate(by, histogram), q, s.rate(strings.TrimPrefix(by+", le", ", "), histogram+"_bucket"))
}

// latency are queries for the quantiles and the mean of a histogram by labels, which the legend shows.
func (s scope) latency(by, legend, histogram string) []Query {
	return []Query{
		{s.quantile(0.99, by, histogram), strings.TrimSpace("99 % " + legend), true},
		{s.quantile(0.5, by, histogram), strings.TrimSpace("50 % " + legend), false},
		{s.mean(by, histogram), strings.TrimSpace("mean " + legend), false},
	}
}

func sum(by, expr string) string {
	if by == "" {
		return "sum(" + expr + ")"
	}
	return "sum by (" + by + ") (" + expr + ")"
}

func top(expr string) string { return "topk(10, " + expr + ")" }

// orZero is 0 where nothing has ever happened: series of problems come with the first one.
func orZero(expr string) string { return expr + " or vector(0)" }

// ask is the only query of a panel.
func ask(expr, legend string) []Query { return []Query{{Expr: expr, Legend: legend}} }
