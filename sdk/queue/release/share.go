package release

import (
	"crypto/sha1" //nolint:gosec // spreads IDs; scripts of Redis have no other hash
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// Share says which tasks of a plugin run on a canary: those with a label, or a percentage of all tasks, which may grow
// in steps.
type Share struct {
	Label string `json:"label,omitempty" maxLength:"1024" doc:"The name of a label: tasks with it run on the canary. Without it, steps decide."`
	Value string `json:"value,omitempty" maxLength:"1024" doc:"The value of the label."`
	Steps []Step `json:"steps,omitempty" maxItems:"20" doc:"Percentages that grow. After the last step the canary serves, if that step has an end."`
}

// Step is a percentage of tasks, and when the next step follows. A step without an end lasts until somebody promotes or
// halts the canary.
type Step struct {
	Percent float64 `json:"percent" minimum:"0" maximum:"100" doc:"How many of 100 tasks run on the canary."`
	Seconds float64 `json:"seconds,omitempty" minimum:"0" doc:"How long the step lasts; 0: no bound."`
	Tasks   int     `json:"tasks,omitempty" minimum:"0" doc:"The step ends when so many tasks have ended on the canary; 0: no bound."`
}

// Duration returns how long the step lasts; 0 for no bound.
func (s Step) Duration() time.Duration { return time.Duration(s.Seconds * float64(time.Second)) }

// String returns the share as users of the command line write it: 1%/10m0s,10%/500 or label:NAME=VALUE.
func (s Share) String() string {
	if s.Label != "" {
		return "label:" + s.Label + "=" + s.Value
	}
	texts := make([]string, len(s.Steps))
	for i, step := range s.Steps {
		texts[i] = step.String()
	}
	return strings.Join(texts, ",")
}

// String returns the step as users of the command line write it.
func (s Step) String() string {
	text := strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
	if s.Seconds > 0 {
		lasts := s.Duration().String() // such as 10m0s or 1h0m0s
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(lasts, zero) {
				lasts = lasts[:len(lasts)-len("0s")]
			}
		}
		text += "/" + lasts
	}
	if s.Tasks > 0 {
		text += "/" + strconv.Itoa(s.Tasks)
	}
	return text
}

// Stage says how far a canary is.
type Stage struct {
	Share Share   `json:"share"`
	Step  int     `json:"step" doc:"The step of the share, from 0."`
	Since float64 `json:"since" doc:"When the step began."`

	Halted float64 `json:"halted,omitempty" doc:"When the canary was halted: it gets no more tasks."`
	Reason string  `json:"reason,omitempty" doc:"Why it was halted."`
}

// Percent returns the percentage of tasks that run on the canary; 0 if a label decides.
func (c *Stage) Percent() float64 {
	if c.Step < 0 || c.Step >= len(c.Share.Steps) {
		return 0
	}
	return c.Share.Steps[c.Step].Percent
}

// Takes reports whether a task runs on the canary, the release with this number. A task that runs on it does so in
// every later step.
func (c *Stage) Takes(number int, id string, labels map[string]string) bool {
	if c.Share.Label != "" {
		value, has := labels[c.Share.Label]
		return has && value == c.Share.Value
	}
	return place(number, id)*100 < c.Percent()*(1<<32)
}

// Needle returns the label as it is in the JSON of a task's labels; "" if the share has none.
func (s *Share) Needle() string {
	if s.Label == "" {
		return ""
	}
	text, _ := json.Marshal(map[string]string{s.Label: s.Value}) // a map of strings can always be encoded
	return string(text[1 : len(text)-1])
}

// place maps a task to a number below 2^32. Another release of the plugin gets other tasks. The function place in the
// prelude of the scripts does the same.
func place(number int, id string) float64 {
	sum := sha1.Sum([]byte(strconv.Itoa(number) + " " + id)) //nolint:gosec // as above
	return float64(binary.BigEndian.Uint32(sum[:]))
}

// The bounds of a share.
const (
	maxSteps    = 20
	maxStepTime = 366 * 24 * time.Hour
	maxLabel    = 1 << 10
)

// validate checks a stage that somebody else wrote.
func (c *Stage) validate() error {
	if c.Step < 0 || c.Step > maxSteps {
		return fmt.Errorf("%w: share of a canary: its step is %d", queue.ErrInvalid, c.Step)
	}
	return c.Share.Validate()
}

// Validate returns an error if the share is not one of tasks.
func (s *Share) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: share of a canary: %s", queue.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Label != "" && len(s.Steps) > 0:
		return wrong("it has a label and steps: use one of them")
	case s.Label != "" && len(s.Label)+len(s.Value) > maxLabel:
		return wrong("its label has %d bytes: use at most %d", len(s.Label)+len(s.Value), maxLabel)
	case s.Label == "" && (len(s.Steps) == 0 || s.Value != ""):
		return wrong("it names no tasks: use a percentage, such as 10%%, or label:NAME=VALUE")
	case len(s.Steps) > maxSteps:
		return wrong("it has %d steps: use at most %d", len(s.Steps), maxSteps)
	}
	before := 0.0
	for i, step := range s.Steps {
		name, ends := "", step.Seconds > 0 || step.Tasks > 0
		if len(s.Steps) > 1 {
			name = fmt.Sprintf("step %d, ", i+1)
		}
		switch {
		case !(step.Percent > before && step.Percent <= 100): // also refuses NaN
			return wrong("%s%v%%: use more than %v%%, and at most 100%%", name, step.Percent, before)
		case !(step.Seconds >= 0 && step.Seconds <= maxStepTime.Seconds()):
			return wrong("%s%v%%: it lasts for %v s: use at most 366 days, such as %v%%/1h", name, step.Percent, step.Seconds,
				step.Percent)
		case step.Tasks < 0:
			return wrong("%s%v%%: it lasts for %d tasks: use 1 or more, such as %v%%/500", name, step.Percent, step.Tasks,
				step.Percent)
		case !ends && i+1 < len(s.Steps):
			return wrong("%s%v%%: only the last step can be without an end: use %v%%/10m, or %v%%/500 for 500 tasks", name,
				step.Percent, step.Percent, step.Percent)
		}
		before = step.Percent
	}
	return nil
}
