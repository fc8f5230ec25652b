package units

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0B": 0, "1B": 1, "007B": 7, "1kB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "16MB": 16e6,
		"2GiB": 2 << 30, "3GB": 3e9, "1TiB": 1 << 40, "9223372036854775807B": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestParseSizeErrors(t *testing.T) {
	t.Parallel()
	const allowed = "; write a whole number and B, kB, KiB, MB, MiB, GB, GiB or TiB, such as 64MiB"
	for text, why := range map[string]string{
		"":                      "it must begin with a whole number",
		"MiB":                   "it must begin with a whole number",
		"-1B":                   "it must begin with a whole number",
		" 1B":                   "it must begin with a whole number",
		"64":                    "it has no unit",
		"64M":                   `the unit "M" is unknown`,
		"64mib":                 `the unit "mib" is unknown`,
		"64 MiB":                `the unit " MiB" is unknown`,
		"1.5GiB":                `the unit ".5GiB" is unknown`,
		"1TB":                   `the unit "TB" is unknown`,
		"8388608TiB":            "it is larger than 9223372036854775807B",
		"9223372036854775808B":  "it is larger than 9223372036854775807B",
		"99999999999999999999B": "it is larger than 9223372036854775807B",
	} {
		_, err := ParseSize(text)
		if want := fmt.Sprintf("%q is not a size: %s%s", text, why, allowed); err == nil || err.Error() != want {
			t.Errorf("ParseSize(%q) =\n%v\nwant\n%s", text, err, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B", 3 << 10: "3KiB", 1000: "1kB", 64 << 20: "64MiB", 65 << 10: "65KiB",
		1e9: "1GB", 1 << 40: "1TiB", 5 << 30: "5GiB", math.MaxInt64: "9223372036854775807B", -1024: "-1KiB",
	} {
		if got := FormatSize(size); got != want {
			t.Errorf("FormatSize(%d) = %s, want %s", size, got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, math.MaxInt64).Draw(t, "size")
		if rapid.Bool().Draw(t, "round") {
			size &^= 1<<rapid.IntRange(0, 62).Draw(t, "bits") - 1
		}
		if got, err := ParseSize(FormatSize(size)); err != nil || got != size {
			t.Fatalf("ParseSize(%s) = %d, %v", FormatSize(size), got, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	f.Add("64MiB")
	f.Add("99999999999999999999TiB")
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if again, err := ParseSize(FormatSize(size)); size < 0 || err != nil || again != size {
			t.Errorf("ParseSize(%q) = %d, again %d, %v", text, size, again, err)
		}
	})
}

func ExampleParseSize() {
	size, err := ParseSize("64MiB")
	fmt.Println(size, err)
	fmt.Println(FormatSize(size))
	// Output:
	// 67108864 <nil>
	// 64MiB
}
