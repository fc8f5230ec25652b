package main

import (
	"io"
	"regexp"
	"testing"
)

// A page of the manual goes to the user's pager on a terminal; without one that works it is printed.
func TestHelpPager(t *testing.T) {
	t.Parallel()
	for pager, want := range map[string]string{
		"sed 's/^/paged /'":   "paged # limits: bound what a task may use\r\n",
		"quern-no-such-pager": "# limits: bound what a task may use\r\n",
		"":                    "# limits: bound what a task may use\r\n",
	} {
		t.Run(pager, func(t *testing.T) {
			t.Parallel()
			person, screen := terminal(t)
			shown := newOutput()
			go func() { _, _ = io.Copy(shown, person) }() // ends with the terminal
			c := newUser(t, "").with(map[string]string{"PAGER": pager}).prepare("help", "limits")
			c.Stdout = screen
			if err := c.Run(); err != nil {
				t.Fatalf("%v: %s", err, c.stderr)
			}
			shown.await(t, regexp.MustCompile(`^`+regexp.QuoteMeta(want)))
		})
	}
}
