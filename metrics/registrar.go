package metrics

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registrar makes families as the catalogue describes them and registers them.
type registrar struct {
	reg prometheus.Registerer
	err error // of families that could not be registered
}

func (r *registrar) register(row int, c prometheus.Collector) {
	if err := r.reg.Register(c); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("register %q: %w", catalogue[row].name, err))
	}
}

func (r *registrar) counter(row int) *prometheus.CounterVec {
	f := catalogue[row]
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help, Unit: f.unit}, f.labels)
	r.register(row, vec)
	return vec
}

func (r *registrar) gauge(row int) *prometheus.GaugeVec {
	f := catalogue[row]
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.name, Help: f.help, Unit: f.unit}, f.labels)
	r.register(row, vec)
	return vec
}

func (r *registrar) histogram(row int) *prometheus.HistogramVec {
	f := catalogue[row]
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: f.name, Help: f.help, Unit: f.unit,
		Buckets:                        buckets[:],
		NativeHistogramBucketFactor:    nativeFactor,
		NativeHistogramMaxBucketNumber: nativeMaxBuckets,
	}, f.labels)
	r.register(row, vec)
	return vec
}

// desc describes a family that is made at the scrape.
func desc(row int) *prometheus.Desc {
	f := catalogue[row]
	return prometheus.V2.NewDesc(
		f.name, f.help, prometheus.UnconstrainedLabels(f.labels), nil, prometheus.WithUnit(f.unit),
	)
}

// vacancy is the one series, with empty labels and 0, of a family that has no other.
type vacancy struct {
	vec *prometheus.MetricVec
	row int
}

// newVacancy shows the vacancy of a new family.
func newVacancy(vec *prometheus.MetricVec, row int) vacancy {
	v := vacancy{vec, row}
	v.show()
	return v
}

func (v vacancy) show() {
	// The error could only be a wrong number of labels, and vec has its labels from the row.
	_, _ = v.vec.GetMetricWithLabelValues(make([]string, len(catalogue[v.row].labels))...)
}

func (v vacancy) clear() {
	v.vec.DeleteLabelValues(make([]string, len(catalogue[v.row].labels))...)
}

// pluginGauge is quern_plugin_info and quern_plugin_reset_mode_info: a series for each plugin that serves.
type pluginGauge struct {
	info, resetMode *prometheus.GaugeVec
	none            [2]vacancy

	mu      sync.Mutex
	serving map[[5]string]struct{} // guarded by mu; label values of resetMode, of which info has the first four
}

func newPluginGauge(info, resetMode *prometheus.GaugeVec) *pluginGauge {
	return &pluginGauge{
		info: info, resetMode: resetMode, serving: map[[5]string]struct{}{},
		none: [2]vacancy{newVacancy(info.MetricVec, pluginInfo), newVacancy(resetMode.MetricVec, pluginResetMode)},
	}
}

func (g *pluginGauge) set(labels [5]string, serving bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if serving {
		g.serving[labels] = struct{}{}
		g.info.WithLabelValues(labels[:4]...).Set(1)
		g.resetMode.WithLabelValues(labels[:]...).Set(1)
	} else {
		delete(g.serving, labels)
		g.info.DeleteLabelValues(labels[:4]...)
		g.resetMode.DeleteLabelValues(labels[:]...)
	}
	for _, v := range g.none {
		if len(g.serving) == 0 {
			v.show()
		} else {
			v.clear()
		}
	}
}
