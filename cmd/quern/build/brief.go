package build

import (
	"path/filepath"
	"regexp"
	"strings"
)

// above ends the errors whose cause is in the messages on Config.Stderr.
const above = "its messages are above"

// Brief returns the text of a build's error for readers who do not see the messages on Config.Stderr: it has the one
// that says what is wrong.
func (s *Source) Brief(err error, messages string) string {
	if message := s.firstWrong(messages); message != "" {
		return strings.Replace(err.Error(), above, message, 1)
	}
	return err.Error()
}

var (
	// placed matches a message of Go, clang or esbuild: FILE:LINE:COLUMN: TEXT.
	placed = regexp.MustCompile(`^(?:\./)?[^\s:]+:\d+(?::\d+)?: (?:(?:fatal )?error: )?.`)
	// pythonPlace matches the place of a Python traceback.
	pythonPlace = regexp.MustCompile(`^ *File "([^"]+)", line (\d+)`)
	// rustPlace matches the place below a message of Rust, ascPlace that of AssemblyScript.
	rustPlace = regexp.MustCompile(`^ *--> (\S+)$`)
	ascPlace  = regexp.MustCompile(`in ([^\s()]+)\((\d+),\d+\)`)
)

// firstWrong returns the message that says what is wrong, with its place, in one line; "" if there is none.
func (s *Source) firstWrong(messages string) string {
	var first, place, last string
	for line := range strings.Lines(messages) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		lower := strings.ToLower(line)
		found := pythonPlace.FindStringSubmatch(line)
		switch {
		case placed.MatchString(line) && !strings.Contains(lower, "warning: ") && !strings.Contains(lower, "note: "):
			return strings.TrimPrefix(line, "./")
		case found != nil:
			inside, err := found[1], error(nil)
			if filepath.IsAbs(inside) {
				inside, err = filepath.Rel(s.Dir, inside)
			}
			if err == nil && filepath.IsLocal(inside) {
				place = inside + ":" + found[2] // the innermost one of the source
			}
		case first == "" && (strings.HasPrefix(lower, "error") || strings.Contains(lower, ": error: ")):
			first = line
		case first != "" && place == "":
			if found := rustPlace.FindStringSubmatch(line); found != nil {
				place = found[1]
			} else if found := ascPlace.FindStringSubmatch(line); found != nil {
				place = found[1] + ":" + found[2]
			}
		}
		if line[0] != ' ' {
			last = line
		}
	}
	if first == "" {
		first = last
	}
	if place != "" && first != "" {
		return place + ": " + first
	}
	return first
}
