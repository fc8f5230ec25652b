package host

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// withBuckets makes the handler JSON get and set a value first.
const withBuckets = `
__attribute__((import_module("quern_v1"), import_name("kv_get")))
int kv_get(const char *bucket, int bucket_length, const char *key, int length);
__attribute__((import_module("quern_v1"), import_name("kv_set")))
int kv_set(const char *bucket, int bucket_length, const char *key, int length, const char *value, int value_length, long long ttl);
__attribute__((export_name("quern_handle")))
int with_buckets(void) {
	kv_get("seen", 4, "order", 5);
	kv_set("seen", 4, "order", 5, "yes", 3, 0);
	return handle();
}
`

// What recording costs a JSON task with two calls of a bucket in Redis, without the host around it. Runs with and
// without a record alternate; the medians of a thousand of each give a ratio.
func BenchmarkRecord(b *testing.B) {
	source := strings.NewReplacer(`export_name("quern_handle")`, `export_name("other")`).Replace(runtimetest.C.HandlerSource(b, "json"))
	n := start(b, settings{idle: true})
	engine, err := runtime.New(b.Context(), runtime.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close(b.Context())
	module, err := engine.Load(b.Context(), runtimetest.C.BuildHandler(b, source+withBuckets))
	if err != nil {
		b.Fatal(err)
	}
	store := kv.New(n.rdb, n.tenant).For([]kv.Grant{{Bucket: "seen", Write: true, Quota: math.MaxInt64}}, nil)
	pools := map[bool]*runtime.Pool{}
	for _, records := range []bool{false, true} {
		var profile runtime.Profile
		if records {
			profile.Tape = func() *replay.Tape { return replay.NewTape(replay.MaxStart) }
		}
		pools[records] = module.Bind(profile)
		defer pools[records].Close()
	}
	run := func(records bool) float64 {
		call := runtime.Call{Input: runtimetest.JSONInput(), Services: service.Services{KV: store}}
		began := time.Now()
		if records {
			call.Tape = replay.TapeOf(256 << 10)
		}
		if got := pools[records].Run(b.Context(), call); got.Kind != runtime.Complete {
			b.Fatalf("%+v", got)
		}
		return float64(time.Since(began).Nanoseconds()) / 1e3
	}
	at := func(list []float64, part float64) float64 {
		slices.Sort(list)
		return list[int(part*float64(len(list)-1))]
	}
	run(false)
	run(true)
	var ratios, without []float64
	for b.Loop() {
		times := map[bool][]float64{}
		for i := range 1000 {
			for _, records := range []bool{i%2 == 0, i%2 != 0} {
				times[records] = append(times[records], run(records))
			}
		}
		median := at(times[false], 0.5)
		ratios, without = append(ratios, at(times[true], 0.5)/median), append(without, median)
	}
	b.ReportMetric(at(without, 0.5), "µs/run")
	b.ReportMetric(100*(at(ratios, 0.5)-1), "%more")
	b.ReportMetric(100*(at(ratios, 0.25)-1), "%more-p25")
	b.ReportMetric(100*(at(ratios, 0.75)-1), "%more-p75")
}
