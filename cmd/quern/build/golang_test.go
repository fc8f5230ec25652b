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
	if got := goObstacles("main.go", []byte("package main\nfunc (")); got != nil {
		t.Errorf("%q of what does not parse", got)
	}
}
