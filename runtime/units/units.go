// Package units reads and writes sizes as people write them: a whole number and a unit, such as "64MiB". It also reads
// durations, which can have days, such as "7d".
//
// Manifests, flags, error messages and limits all use this package.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are sorted so that the first unit that divides a size is the one that a person would pick: binary before
// decimal, large before small.
var units = [...]struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// ParseSize returns the number of bytes that a size such as "64MiB" stands for. The number is whole and not negative.
// The unit is one of B, kB, KiB, MB, MiB, GB, GiB, TiB, written exactly so and without a space.
func ParseSize(text string) (int64, error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	number, name := text[:digits], text[digits:]
	if number == "" {
		return 0, sizeError(text, "it must begin with a whole number")
	}
	if name == "" {
		return 0, sizeError(text, "it has no unit")
	}
	for _, u := range units {
		if u.name != name {
			continue
		}
		count, err := strconv.ParseInt(number, 10, 64)
		if err != nil || count > math.MaxInt64/u.bytes {
			return 0, sizeError(text, "it is larger than "+FormatSize(math.MaxInt64))
		}
		return count * u.bytes, nil
	}
	return 0, sizeError(text, fmt.Sprintf("the unit %q is unknown", name))
}

// FormatSize writes a number of bytes so that ParseSize returns the same number. It uses the largest binary unit that
// divides the number, or else the largest decimal unit.
func FormatSize(bytes int64) string {
	for _, u := range units {
		if bytes != 0 && bytes%u.bytes == 0 {
			return strconv.FormatInt(bytes/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

func sizeError(text, why string) error {
	return fmt.Errorf("%q is not a size: %s; write a whole number and B, kB, KiB, MB, MiB, GB, GiB or TiB, such as 64MiB",
		text, why)
}
