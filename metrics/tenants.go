package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tenantCollector makes quern_tenant_up at the scrape.
type tenantCollector struct {
	up     *prometheus.Desc
	source atomic.Pointer[func() map[string]bool]
}

func newTenantCollector() *tenantCollector {
	c := &tenantCollector{up: desc(tenantUp)}
	c.use(func() map[string]bool { return map[string]bool{"": false} }) // as vacancy does
	return c
}

func (c *tenantCollector) use(source func() map[string]bool) { c.source.Store(&source) }

// Describe is part of prometheus.Collector.
func (c *tenantCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.up }

// Collect is part of prometheus.Collector.
func (c *tenantCollector) Collect(ch chan<- prometheus.Metric) {
	for tenant, up := range (*c.source.Load())() {
		value := 0.0
		if up {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, value, text(tenant))
	}
}
