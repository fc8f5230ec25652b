package javascript

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The mappings are those of the source map specification: differences in base64 VLQ, rows by ";", segments by ",".
func TestDecodeMappings(t *testing.T) {
	t.Parallel()
	got, err := decodeMappings("AAAA,IACgBC,E;;UCDhB", 2)
	want := []position{{0, 0, 0, 0, 0}, {0, 4, 0, 1, 16}, {2, 10, 1, 0, 0}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}

func TestPositionsRefuses(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"JSON":           `{`,
		"letter":         `{"sources":["a"],"mappings":"AA!A"}`,
		"unended number": `{"sources":["a"],"mappings":"AAAg"}`,
		"long number":    `{"sources":["a"],"mappings":"gggggggggggggggA"}`,
		"source":         `{"sources":["a"],"mappings":"ACAA"}`,
		"column":         `{"sources":["a"],"mappings":"AAAD"}`,
	} {
		if table, err := Positions([]byte(source)); err == nil || !strings.Contains(err.Error(), "read source map") {
			t.Errorf("%s: %q %v", name, table, err)
		}
	}
}

// A map of anybody makes an error or a table, in which each block fits the engine's buffer.
func FuzzPositions(f *testing.F) {
	f.Add("AAAA,IACgBC,E;;UCDhB")
	f.Fuzz(func(t *testing.T, mappings string) {
		source, err := json.Marshal(map[string]any{"sources": []string{"../a.ts", "b.ts"}, "sourceRoot": "src", "mappings": mappings})
		if err != nil {
			t.Skip()
		}
		table, err := Positions(source)
		if err != nil {
			return
		}
		blocks := number(table[8:])
		for n := range blocks {
			if at, end := number(table[12+12*n+8:]), number(table[12+12*n+20:]); at >= end || end-at > 4<<10 || end > len(table) {
				t.Errorf("block %d of %d: from %d to %d of %d bytes", n, blocks, at, end, len(table))
			}
		}
	})
}

func number(data []byte) int {
	return int(data[0]) | int(data[1])<<8 | int(data[2])<<16 | int(data[3])<<24
}
