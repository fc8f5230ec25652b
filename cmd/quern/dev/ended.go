package dev

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/sdk/queue"
)

// endedLine describes the end of a task's run in one line, and a failure with the places in the source below it.
func endedLine(s show.Screen, e host.Ended) string {
	line := fmt.Sprintf("%s %s", show.OneLine(e.Queue), shortTime(e.Took))
	if e.Status > 0 && e.Failure == nil { // a failure names the status
		line = fmt.Sprintf("%s %d, %s", show.OneLine(e.Queue), e.Status, shortTime(e.Took))
	}
	return headLine(s, e, line) + frameLines(e.Failure)
}

// maxFrameLines is how many lines of a stack are shown of a failure: `quern task show` has them all.
const maxFrameLines = 10

// frameLines returns the stack of a failure, each line after a line break.
func frameLines(f *queue.Failure) (text string) {
	if f == nil {
		return ""
	}
	frames := f.Backtrace
	if _, more, found := strings.Cut(f.Message, "\n"); found {
		frames = strings.Split(strings.TrimSpace(more), "\n")
	}
	head := f.Headline()
	if !slices.ContainsFunc(frames, func(frame string) bool { return !strings.Contains(head, frame) }) {
		return "" // the line has them all
	}
	for _, frame := range frames[:min(len(frames), maxFrameLines)] {
		text += "\n    " + show.Escape(strings.TrimRight(frame, " \r"))
	}
	if len(frames) > maxFrameLines {
		text += "\n    …"
	}
	return text
}

func headLine(s show.Screen, e host.Ended, line string) string {
	switch {
	case e.Failure == nil:
		return s.Code("32", "✓") + " " + line
	case e.PutOff:
		return fmt.Sprintf("%s %s %s: (put off) %s: it runs again later, without counting an attempt",
			s.Code("33", "↻"), line, show.OneLine(e.ID), show.OneLine(e.Failure.Headline()))
	case e.Again:
		return fmt.Sprintf("%s %s %s: (%s) %s: it will be tried again", s.Code("33", "↻"), line, show.OneLine(e.ID),
			e.Failure.Word(), show.OneLine(e.Failure.Headline()))
	}
	return fmt.Sprintf("%s %s %s: (%s) %s", s.Code("31", "✗"), line, show.OneLine(e.ID), e.Failure.Word(),
		show.OneLine(e.Failure.Headline()))
}

// shortTime formats how long a task took.
func shortTime(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
