package nodehost

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/runtime/units"
)

// memorySetting is a size, or a share of the memory that is available to this process.
type memorySetting struct {
	percent int
	bytes   int64
}

func (m *memorySetting) Type() string { return "size|percent" }

func (m *memorySetting) String() string {
	if m.percent > 0 {
		return strconv.Itoa(m.percent) + "%"
	}
	return units.FormatSize(m.bytes)
}

// Set reads "75%" or a size like "8GiB".
func (m *memorySetting) Set(text string) error {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		if percent, err := strconv.Atoi(number); err == nil && percent >= 1 && percent <= 100 {
			m.percent, m.bytes = percent, 0
			return nil
		}
	}
	if bytes, err := units.ParseSize(text); err == nil && bytes > 0 && bytes <= option.MaxSize {
		m.percent, m.bytes = 0, bytes
		return nil
	}
	return errors.New("use 1% to 100%, or a size like 512MiB or 8GiB, up to " + units.FormatSize(option.MaxSize))
}

// resolve returns the setting in bytes.
func (m *memorySetting) resolve() (int64, error) {
	if m.percent == 0 {
		return m.bytes, nil
	}
	total, err := availableMemory()
	if err != nil {
		return 0, cli.Refusedf("cannot tell how much memory this machine has, to take %s of it (%w): give --memory a size like 8GiB", m, err)
	}
	return total / 100 * int64(m.percent), nil
}

// availableMemory returns the memory that this process can use, in bytes: that of the machine, or the limit of a cgroup
// if that is lower.
func availableMemory() (int64, error) {
	total, err := machineMemory()
	if limit, ok := cgroupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok && (err != nil || limit < total) {
		return limit, nil
	}
	return total, err
}

// totalMemory reads MemTotal from a file like /proc/meminfo.
func totalMemory(meminfo string) (int64, error) {
	f, err := os.Open(meminfo)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New(meminfo + " has no MemTotal")
}

// cgroupMemory returns the lowest limit of the process's cgroup and its parents, in bytes: memory.max in version 2,
// memory.limit_in_bytes of the memory controller in version 1. It ignores folders that do not exist: in a container,
// the path can be the path on the container's host, but only the container's own folder is mounted.
func cgroupMemory(self, mount string) (int64, bool) {
	content, err := os.ReadFile(self)
	if err != nil {
		return 0, false
	}
	var least int64
	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // NUMBER:CONTROLLERS:PATH
		if len(parts) != 3 {
			continue
		}
		root, name := mount, "memory.max"
		if parts[0] != "0" {
			if !slices.Contains(strings.Split(parts[1], ","), "memory") {
				continue
			}
			root, name = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			text, _ := os.ReadFile(filepath.Join(root, dir, name))
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" means no limit
			if err == nil && limit > 0 && (least == 0 || limit < least) {
				least = limit
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, least > 0
}
