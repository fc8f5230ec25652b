package exampletest

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBuildCommands(t *testing.T) {
	t.Parallel()
	const fence = "```"
	tests := map[string]struct {
		readme string
		want   []build
		err    string
	}{
		"OK": {
			readme: "# shout\n\n## Build\n\n" + fence + "sh\ncc -o shout.wasm shout.c\n" + fence + "\n",
			want:   []build{{"cc -o shout.wasm shout.c", "shout.wasm"}},
		},
		"OKWithText": {
			readme: "## Build\n\nOne command.\nNo more.\n\n" + fence + "sh\nA=b cc -o x.wasm x.c\n" + fence + "\n## Run\n",
			want:   []build{{"A=b cc -o x.wasm x.c", "x.wasm"}},
		},
		"OKTwo": {
			readme: "## Build\n\n" + fence + "sh\ncc -o x.wasm x.c\ncc -o y.wasm y.c\n" + fence + "\n",
			want:   []build{{"cc -o x.wasm x.c", "x.wasm"}, {"cc -o y.wasm y.c", "y.wasm"}},
		},
		"ErrNoHeading": {
			readme: fence + "sh\ncc -o shout.wasm shout.c\n" + fence + "\n",
			err:    "heading ## Build",
		},
		"ErrOtherSection": {
			readme: "## Build\n\nLater.\n\n## Run\n\n" + fence + "sh\ncc -o x.wasm x.c\n" + fence + "\n",
			err:    "heading ## Build",
		},
		"ErrNoOutput": {
			readme: "## Build\n\n" + fence + "sh\ncc -o x.wasm x.c\nmake\n" + fence + "\n",
			err:    "no -o NAME.wasm",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := buildCommands(tt.readme)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
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
