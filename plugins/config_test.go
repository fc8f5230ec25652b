package plugins

import (
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

func TestManifestLimits(t *testing.T) {
	t.Parallel()
	own := func(timeout, cpu time.Duration) manifest.Manifest {
		return manifest.Manifest{Limits: runtime.Limits{Timeout: timeout, CPU: cpu}}
	}
	under := func(m manifest.Manifest, host Config) runtime.Limits {
		return manifest.NewPermissions(&m, nil, "acme", host.withDefaults().Ceilings).Limits
	}
	tests := []struct{ own, ceiling, want time.Duration }{
		{0, 0, 0},
		{0, time.Minute, time.Minute},
		{time.Second, time.Minute, time.Second},
		{time.Hour, time.Minute, time.Minute},
		{time.Hour, 0, time.Hour},
	}
	for _, tt := range tests {
		if got := under(own(tt.own, 1), Config{MaxTimeout: tt.ceiling}); got.Timeout != tt.want || got.CPU != 1 {
			t.Errorf("timeout of its own %s, ceiling %s: %+v, want %s", tt.own, tt.ceiling, got, tt.want)
		}
		if got := under(own(1, tt.own), Config{MaxCPU: tt.ceiling}); got.CPU != tt.want || got.Timeout != 1 {
			t.Errorf("cpu of its own %s, ceiling %s: %+v, want %s", tt.own, tt.ceiling, got, tt.want)
		}
	}
	want := runtime.Limits{Memory: 64 << 20, Input: 16 << 20, Output: 16 << 20, Log: 256 << 10}
	if got := under(manifest.Default("x"), Config{}); got != want {
		t.Errorf("without a manifest: %+v, want %+v", got, want)
	}
}
