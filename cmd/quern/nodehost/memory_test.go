package nodehost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCgroupMemory(t *testing.T) {
	t.Parallel()
	const unlimited = "9223372036854771712\n" // what version 1 shows where there is no limit
	tests := map[string]struct {
		self  string
		files map[string]string
		want  int64 // 0: no limit
	}{
		"Version2":          {"0::/app\n", map[string]string{"app/memory.max": "1048576\n"}, 1 << 20},
		"Version2Parent":    {"0::/slice/app\n", map[string]string{"slice/memory.max": "1048576\n", "slice/app/memory.max": "2097152\n"}, 1 << 20},
		"Version2Child":     {"0::/slice/app\n", map[string]string{"slice/memory.max": "max\n", "slice/app/memory.max": "2097152\n"}, 2 << 20},
		"Version2None":      {"0::/app\n", map[string]string{"app/memory.max": "max\n"}, 0},
		"Version2Container": {"0::/\n", map[string]string{"memory.max": "1048576\n"}, 1 << 20},
		"Version2Outside":   {"0::/../../init.scope\n", map[string]string{"memory.max": "1048576\n"}, 1 << 20},
		"Version1": {
			"12:cpu,cpuacct:/other\n5:memory:/app\n1:name=systemd:/app\n",
			map[string]string{"memory/app/memory.limit_in_bytes": "1048576\n", "memory/memory.limit_in_bytes": unlimited, "memory/other/memory.limit_in_bytes": "1\n"},
			1 << 20,
		},
		"Version1Together":  {"5:hugetlb,memory:/app\n", map[string]string{"memory/app/memory.limit_in_bytes": "1048576\n"}, 1 << 20},
		"Version1Container": {"5:memory:/docker/0123\n", map[string]string{"memory/memory.limit_in_bytes": "1048576\n"}, 1 << 20},
		"Both":              {"5:memory:/app\n0::/app\n", map[string]string{"memory/app/memory.limit_in_bytes": "2097152\n", "app/memory.max": "1048576\n"}, 1 << 20},
		"NoFiles":           {"0::/app\n", nil, 0},
		"Damaged":           {"nonsense\n0::/app\n", map[string]string{"app/memory.max": "lots\n", "memory.max": "-1\n"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mount := t.TempDir()
			for file, content := range tt.files {
				write(t, filepath.Join(mount, file), content)
			}
			self := write(t, filepath.Join(t.TempDir(), "cgroup"), tt.self)
			if got, ok := cgroupMemory(self, mount); got != tt.want || ok != (tt.want > 0) {
				t.Errorf("%d, %v, want %d", got, ok, tt.want)
			}
		})
	}
	if limit, ok := cgroupMemory(filepath.Join(t.TempDir(), "none"), t.TempDir()); ok {
		t.Errorf("%d where there are no cgroups", limit)
	}
}

func TestTotalMemory(t *testing.T) {
	t.Parallel()
	meminfo := write(t, filepath.Join(t.TempDir(), "meminfo"), "MemFree:  1 kB\nMemTotal:       16384256 kB\nMemAvailable:  2 kB\n")
	if got, err := totalMemory(meminfo); err != nil || got != 16384256<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for _, content := range []string{"", "MemTotal: lots kB\n", "MemFree: 1 kB\n"} {
		if got, err := totalMemory(write(t, filepath.Join(t.TempDir(), "meminfo"), content)); err == nil {
			t.Errorf("%q: %d", content, got)
		}
	}
	if got, err := availableMemory(); err != nil || got < 1<<20 {
		t.Errorf("this machine has %d, %v", got, err)
	}
}

func TestMemorySetting(t *testing.T) {
	t.Parallel()
	total, err := availableMemory()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int64{"75%": total / 100 * 75, "100%": total / 100 * 100, "8GiB": 8 << 30, "512MiB": 512 << 20} {
		var m memorySetting
		if err := m.Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := m.resolve(); got != want || err != nil || m.String() != text {
			t.Errorf("%s: %d, %v, shown as %s", text, got, err, m.String())
		}
	}
	for _, text := range []string{"", "0%", "101%", "-5%", "7.5%", "%", "0B", "80", "8 GiB", "8gb", "-8GiB"} {
		if err := new(memorySetting).Set(text); err == nil || !strings.HasPrefix(err.Error(), "use ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
