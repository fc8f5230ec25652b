package manifest_test

import (
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
)

// Every mistake is told at once, with its line, its field and what would be right.
func ExampleParse() {
	_, err := manifest.Parse("thumbnails.yaml", []byte("limits:\n  memroy: 64MiB\n  timeout: 30\n"))
	fmt.Println(err)
	// Output:
	// thumbnails.yaml:2: limits: unknown key "memroy": did you mean "memory"?; thumbnails.yaml:3: limits.timeout: "30" has no unit: write a duration such as 30s, 5m, 24h or 7d, or leave the key out for 1h
}
