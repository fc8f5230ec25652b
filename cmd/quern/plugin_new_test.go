package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What `plugin new` makes is built as its README says, checked, run, and served: every command of the
// README in its order, by a shell in the new folder.
func TestPluginNew(t *testing.T) {
	t.Parallel()
	for language, files := range map[string][]string{
		"go": {"README.md", "go.mod", "greet.yaml", "main.go"},
		"c":  {"README.md", "greet.c", "greet.yaml"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			u := tenant(t)
			dir := filepath.Join(t.TempDir(), "greet")
			made := strings.Fields(u.must("plugin", "new", dir, "--lang", language))
			for i, name := range made {
				made[i] = filepath.Base(name)
			}
			if slices.Sort(made); !slices.Equal(made, files) {
				t.Errorf("it made %v, want %v", made, files)
			}
			if r := u.run("plugin", "new", dir); r.status != exitRefused || !strings.Contains(r.stderr, "exists already: choose another name") {
				t.Errorf("again: exit %d: %s", r.status, r.stderr)
			}

			commands := readmeCommands(t, dir)
			if len(commands) != 3 {
				t.Fatalf("the README has the commands %q", commands)
			}
			u.shell(dir, commands[0])
			u.shell(dir, "quern plugin check greet.wasm")
			if got := u.shell(dir, commands[1]); got != "Hello, Ada, from task local!\n" {
				t.Errorf("%s: %q", commands[1], got)
			}
			plugins := t.TempDir()
			for _, name := range []string{"greet.yaml", "greet.wasm"} {
				content, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(plugins, name), string(content))
			}
			c := u.spawn("serve", "--plugins", plugins, "--http", "127.0.0.1:0")
			c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=greet`))
			if got := u.shell(dir, commands[2]); !regexp.MustCompile(`^Hello, Ada, from task [0-9a-f-]{36}!\n$`).MatchString(got) {
				t.Errorf("%s: %q", commands[2], got)
			}
			r := u.run("enqueue", "greet", "--wait")
			if r.status != exitFailed || !strings.Contains(r.stderr, "failed (error): exit status 65") {
				t.Errorf("without parameters: exit %d: %s", r.status, r.stderr)
			}
		})
	}
}

// readmeCommands are the indented lines of the README in a folder.
func readmeCommands(t *testing.T, dir string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(readme)) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// shell runs a line in a folder as the user would, and returns stdout.
func (u *user) shell(dir, line string) string {
	u.t.Helper()
	quern, err := binary()
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(quern)+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, value := range u.env {
		if name != "XDG_CACHE_HOME" { // that of compilers stays theirs
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", line, err, &stderr)
	}
	return string(stdout)
}
