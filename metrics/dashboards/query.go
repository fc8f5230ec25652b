package dashboards

import (
	"fmt"
	"strings"
)

// scope is the label matchers that narrow families to what the reader has picked.
type scope string

// scopeOf returns the scope of a dashboard with these variables.
func scopeOf(variables []Variable) scope {
	var matchers []string
	for _, v := range variables {
		matchers = append(matchers, fmt.Sprintf(`%s=~"$%s"`, v.Label, v.Label))
	}
	return scope(strings.Join(matchers, ","))
}

// of returns a selector for a family, with further matchers such as state="pending".
func (s scope) of(family string, matchers ...string) string {
	return family + "{" + strings.Join(append([]string{string(s)}, matchers...), ",") + "}"
}

// rate returns a query for the growth of a counter per second, summed by labels.
func (s scope) rate(by, counter string, matchers ...string) string {
	return sum(by, "rate("+s.of(counter, matchers...)+"[$__rate_interval])")
}

// increase returns a query for the growth of a counter since the previous point of the chart, summed by labels. Stacked
// or summed, the points count each event once. The points of the panel are at least a minute apart (see Panel.targets).
func (s scope) increase(by, counter string, matchers ...string) string {
	return sum(by, "increase("+s.of(counter, matchers...)+"[$__interval])")
}

// alike returns a query for a gauge of queues that every host shows with the same value, summed by labels.
func (s scope) alike(by, gauge string, matchers ...string) string {
	inner := "job, tenant, queue" // each job is a separate fleet
	if gauge == "quern_queue_depth" {
		inner += ", state"
	}
	return sum(by, "max by ("+inner+") ("+s.of(gauge, matchers...)+")")
}

// oldest returns a query for how long the oldest task of each queue has waited. Paused queues and queues of dead
// letters are left out.
func (s scope) oldest() string {
	queue := func(family string) string { return "max by (job, tenant, queue) (" + s.of(family) + ")" }
	return queue("quern_queue_oldest_pending_age_seconds") + "\nunless " + queue("quern_queue_paused") + " > 0\nunless " +
		queue("quern_queue_dead_letters")
}

// mean returns a query for the mean of a histogram by labels. It uses the native histogram if Prometheus has it.
func (s scope) mean(by, histogram string) string {
	native := s.rate(by, histogram)
	return "histogram_sum(" + native + ") / (histogram_count(" + native + ") > 0)\nor\n" +
		s.rate(by, histogram+"_sum") + " / (" + s.rate(by, histogram+"_count") + " > 0)"
}

// quantile returns a query for a quantile of a histogram by labels. It uses the native histogram if Prometheus has it.
func (s scope) quantile(q float64, by, histogram string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)\nor\nhistogram_quantile(%g, %s)",
		q, s.rate(by, histogram), q, s.rate(strings.TrimPrefix(by+", le", ", "), histogram+"_bucket"))
}

// latency returns queries for two quantiles and the mean of a histogram by labels. legend is the part of each series'
// name that shows the labels.
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

// orZero returns a query that is 0 while there is no series: a series of problems appears with its first problem.
func orZero(expr string) string { return expr + " or vector(0)" }

// ask returns the query of a panel that has only one.
func ask(expr, legend string) []Query { return []Query{{Expr: expr, Legend: legend}} }
