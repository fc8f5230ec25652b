package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tscError matches an error of tsc. Most have a place in the source.
var tscError = regexp.MustCompile(`^(?:(\S.*)\((\d+),(\d+)\): )?(error TS\d+: .*)$`)

// TypeErrors checks the types of a source in TypeScript, by the compiler tsc of the plugin's own node_modules. It
// returns the errors, each in one line that begins with its place. It returns none if the folder has no tsc or no
// tsconfig.json. An error means that tsc did not run to its end.
func TypeErrors(ctx context.Context, s *Source) (found []string, err error) {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "tsconfig.json")); err != nil || s.Language != javascript {
		return nil, nil //nolint:nilerr // there is nothing to check
	}
	program, err := lookPath(filepath.Join(dir, "node_modules", ".bin", "tsc"))
	if err != nil {
		return nil, nil //nolint:nilerr // as the comment above says
	}
	// tsc must write no file into the folder, where a new file would start a build.
	cmd := command(ctx, program, "--noEmit", "--pretty", "false", "--incremental", "false", "--composite", "false")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	text, err := cmd.Output()
	for line := range strings.Lines(string(text)) {
		if m := tscError.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil && m[1] != "" {
			found = append(found, fmt.Sprintf("%s:%s:%s: %s", m[1], m[2], m[3], m[4]))
		} else if m != nil {
			found = append(found, m[4])
		}
	}
	failed, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil || exited && len(found) > 0:
		return found, nil
	case exited:
		return nil, fmt.Errorf("%w: %.200s", err, strings.TrimSpace(string(failed.Stderr)+string(text)))
	}
	return nil, err
}
