package build

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Functions that need sockets or processes are reported with their place and what to use instead; their packages' other
// functions and files of other systems are not.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"Get":      {"package main\n\nimport \"net/http\"\n\nfunc f() { http.Get(\"\"); http.Get(\"\") }\n", `^main.go:5:12: warning: http.Get does not work here: a plugin has no sockets: send requests by github.com/quern-project/quern/sdk/fetch$`},
		"Renamed":  {"package main\n\nimport web \"net/http\"\n\nvar client web.Client\n", `^main.go:5:12: warning: web.Client does `},
		"Database": {"package main\n\nimport \"database/sql\"\n\nvar db, _ = sql.Open(\"\", \"\")\n", `^main.go:5:13: warning: sql.Open .* use sdk.Bucket`},
		"Process":  {"package main\n\nimport \"os/exec\"\n\nvar c = exec.Command(\"ls\")\n", `^main.go:5:9: warning: exec.Command .* starts no processes`},
		"Two":      {"package main\n\nimport (\n\t\"net\"\n\t\"os/exec\"\n)\n\nvar c, d, e = exec.Command, net.Dial, exec.Command\n", `^main.go:8:29: warning: net.Dial .*\nmain.go:8:15: warning: exec.Command .*$`},
		"Status":   {"package main\n\nimport \"net/http\"\n\nvar ok = http.StatusOK\n", `^$`},
		"Blank":    {"package main\n\nimport _ \"net/http\"\n\nfunc f(http struct{ Get func() }) { http.Get() }\n", `^$`},
		"Native":   {"//go:build !wasip1\n\npackage main\n\nimport \"net/http\"\n\nvar _ = http.Get\n", `^$`},
		"Broken":   {"package main\n\nimport \"net/http\"\n\nvar _ = http.Get(\n", `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(unfit(&Source{Dir: dir, Files: []string{"main.go"}}, [][]byte{[]byte(test.text)}), "\n")
			if !regexp.MustCompile(test.want).MatchString(got) {
				t.Errorf("got %q, want %s", got, test.want)
			}
		})
	}
}
