package runtime

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// calling is a handler that calls a function of the host as often as its input says, in 8 bytes.
const calling = `
#include "quern.h"
static char text[200] = "resized photo.jpg to 200x200 in 12ms";
QUERN_HANDLER int32_t handle(void) {
	int64_t n = 0;
	quern_input_read(0, &n, sizeof n);
	while (n-- > 0) CALL;
	return 0;
}`

// oneValue is a store that answers 100 bytes, whatever it is asked for.
type oneValue struct{ service.KV }

func (oneValue) Get(context.Context, string, string) ([]byte, error) { return make([]byte, 100), nil }

// BenchmarkHostCall is what one call of a function of quern_v1 costs: one that does nothing but answer, a line of the log,
// and a value of 100 bytes that the guest copies, from this process's memory: what Redis takes for it is measured in
// host/kv. "none" is the guest's loop alone. The time of the task itself is in all of them, shared by 10,000 calls.
func BenchmarkHostCall(b *testing.B) {
	get := `quern_result_read(0, text, quern_kv_get("b", 1, "k", 1))`
	for _, test := range []struct {
		name, call string
		kv         service.KV
	}{
		{"none", `__asm__ volatile("")`, nil},
		{"empty", "quern_cancelled()", nil},
		{"log", "quern_log(2, text, 36, 0, 0)", nil},
		{"kv_get", get, oneValue{}},
	} {
		b.Run(test.name, func(b *testing.B) {
			module := load(b, runtimetest.BuildCHandler(b, calling, "-DCALL="+test.call))
			p, lines := module.Bind(Profile{Limits: Limits{Log: 1 << 40}}), 0
			c := Call{
				Services: service.Services{KV: test.kv}, Log: func(string) { lines++ },
				Input: make([]byte, 8),
			}
			for left := int64(b.N); left > 0; left -= 10_000 {
				binary.LittleEndian.PutUint64(c.Input, uint64(min(left, 10_000)))
				if got := p.Run(context.Background(), c); got.Kind != Complete {
					b.Fatalf("%+v", got)
				}
			}
			if test.name == "log" && lines != b.N {
				b.Errorf("%d lines of %d", lines, b.N)
			}
		})
	}
}

// BenchmarkKind is the same work, an order of 1 KB as JSON, as a command and as a handler of a warm image.
func BenchmarkKind(b *testing.B) {
	for _, language := range []runtimetest.Language{runtimetest.C, runtimetest.Go} {
		for _, kind := range []struct {
			name   string
			binary []byte
			warm   bool
		}{{"command", language.JSONCommand(b), false}, {"handler", language.JSON(b), true}} {
			b.Run(string(language)+"/"+kind.name, func(b *testing.B) {
				work := chore{"json1k", kind.binary, runtimetest.JSONInput()}
				benchmarkHandler(b, Config{ResetMode: ResetScan}, kind.warm, work)
			})
		}
	}
}
