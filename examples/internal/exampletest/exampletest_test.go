package exampletest

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBuildCommand(t *testing.T) {
	t.Parallel()
	const fence = "```"
	tests := map[string]struct {
		readme, command, file string
		err                   string
	}{
		"OK": {
			readme:  "# shout\n\n## Build\n\n" + fence + "sh\ncc -o shout.wasm shout.c\n" + fence + "\n",
			command: "cc -o shout.wasm shout.c", file: "shout.wasm",
		},
		"OKWithText": {
			readme:  "## Build\n\nOne command.\nNo more.\n\n" + fence + "sh\nA=b cc -o x.wasm x.c\n" + fence + "\n## Run\n",
			command: "A=b cc -o x.wasm x.c", file: "x.wasm",
		},
		"ErrNoHeading": {
			readme: fence + "sh\ncc -o shout.wasm shout.c\n" + fence + "\n",
			err:    "heading ## Build",
		},
		"ErrOtherSection": {
			readme: "## Build\n\nLater.\n\n## Run\n\n" + fence + "sh\ncc -o x.wasm x.c\n" + fence + "\n",
			err:    "heading ## Build",
		},
		"ErrTwoLines": {
			readme: "## Build\n\n" + fence + "sh\nmkdir out\ncc -o out/x.wasm x.c\n" + fence + "\n",
			err:    "more than one line",
		},
		"ErrNoOutput": {
			readme: "## Build\n\n" + fence + "sh\nmake\n" + fence + "\n",
			err:    "no -o NAME.wasm",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command, file, err := buildCommand(tt.readme)
			if command != tt.command || file != tt.file {
				t.Errorf("command %q makes %q, want %q makes %q", command, file, tt.command, tt.file)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q in it", err, tt.err)
			}
		})
	}
}

func TestCompilerOf(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"clang-14 --target=wasm32-wasi -o x.wasm x.c":  "clang-14",
		"GOOS=wasip1 GOARCH=wasm go build -o x.wasm .": "go",
		"FLAGS=--a=b": "",
	} {
		if got := compilerOf(command); got != want {
			t.Errorf("compiler of %q: %q, want %q", command, got, want)
		}
	}
}
