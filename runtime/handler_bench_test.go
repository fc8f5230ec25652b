package runtime

import (
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

func BenchmarkHandlerX(b *testing.B) {
	engine := setup(b)
	for _, lang := range []runtimetest.Language{runtimetest.C, runtimetest.Go} {
		for name, binary := range map[string][]byte{"empty": lang.Empty(b), "json": lang.JSON(b)} {
			for _, mode := range []string{"new", "cold", "warm"} {
				b.Run(string(lang)+"/"+name+"/"+mode, func(b *testing.B) {
					module := loadInto(b, engine, binary)
					c := Call{Input: runtimetest.JSONInput()}
					if mode != "new" {
						c.Pool = mode
					}
					if mode == "warm" {
						c.Warm = runtimetest.JSONInput()
					}
					for b.Loop() {
						if got := module.Run(b.Context(), c); got.Kind != Complete {
							b.Fatalf("%+v", got)
						}
					}
				})
			}
		}
	}
}
