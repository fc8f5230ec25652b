package metrics_test

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/quern-project/quern/metrics"
)

func ExampleNew() {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Config{Version: "1.0.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.QueueServed("acme", "thumbnails", "thumbnails")
	m.TaskDropped("acme", "thumbnails")
	m.Tasks("acme", "thumbnails", "thumbnails").Done("failed", "timeout", "", 30*time.Second)

	families, err := reg.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		switch f.GetName() {
		case "quern_tasks_dropped_total", "quern_tasks_total":
			if _, err := expfmt.MetricFamilyToText(os.Stdout, f); err != nil {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// # HELP quern_tasks_dropped_total Task IDs dropped at reservation because the task is missing or already finished.
	// # TYPE quern_tasks_dropped_total counter
	// quern_tasks_dropped_total{queue="",tenant=""} 0
	// quern_tasks_dropped_total{queue="thumbnails",tenant="acme"} 1
	// # HELP quern_tasks_total Tasks that this host ran, by outcome; reason is the cause of a failure.
	// # TYPE quern_tasks_total counter
	// quern_tasks_total{outcome="complete",plugin="thumbnails",queue="thumbnails",reason="",tenant="acme"} 0
	// quern_tasks_total{outcome="failed",plugin="thumbnails",queue="thumbnails",reason="timeout",tenant="acme"} 1
}
