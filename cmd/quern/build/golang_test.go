package build

import (
	"slices"
	"testing"
)

// TestGoObstacles: what compiles and cannot work is told once for each package, with its place; what has another use is not.
func TestGoObstacles(t *testing.T) {
	t.Parallel()
	const source = `package main

import (
	"net"
	web "net/http"
	"os"

	"github.com/jackc/pgx/v5"
)

func handle() {
	_, _ = web.Get("https://a.example")
	_, _ = web.Post("https://a.example", "", nil)
	_ = web.StatusOK
	_ = net.ParseIP("::1")
	_ = os.Args
	_ = pgx.ErrNoRows
}
`
	const socketless = ": a plugin has no sockets: "
	want := []string{
		"main.go:8:2: warning: github.com/jackc/pgx/v5" + socketless + "reach the database by an HTTP API, with github.com/quern-project/quern/sdk/fetch",
		"main.go:12:9: warning: net/http.Get" + socketless + "use github.com/quern-project/quern/sdk/fetch, with capabilities.http in the manifest",
	}
	if got := goObstacles("main.go", []byte(source)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	files := "package main\n\nimport \"os\"\n\nfunc main() { os.Args, _ = nil, os.WriteFile }\n"
	want = []string{"main.go:5:33: warning: os.WriteFile: a plugin has no files but those of capabilities.files, for reading: " +
		"grant them in the manifest, or use kv or checkpoints of github.com/quern-project/quern/sdk"}
	if got := goObstacles("main.go", []byte(files)); !slices.Equal(got, want) {
		t.Errorf("files: %q", got)
	}
	if got := goObstacles("main.go", []byte("package main\nfunc (")); got != nil {
		t.Errorf("%q of what does not parse", got)
	}
}
