package tenant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
)

// report says how the replay ended, and how that compares with the record.
func (r *taskReplay) report(cmd *cobra.Command, p *pluginfile.File, record *replay.Record, options replay.Options,
	outcome runtime.Outcome, tape *replay.Tape,
) error {
	place := ""
	if outcome.Place != "" {
		place = " at " + outcome.Place
	}
	frames := func() {
		for i, frame := range outcome.Backtrace {
			cli.Note(cmd, "frame %d: %s", i, frame)
		}
	}
	diverged, differs := errors.AsType[*replay.Diverged](outcome.Err)
	ended := errors.Is(outcome.Err, replay.ErrEnd)
	stopped := errors.Is(outcome.Err, replay.ErrStopped)
	switch {
	case differs:
		frames()
		return cli.Refusedf("the replay took another way than run %d of task %s: %w%s%s", record.Run, record.Task, diverged, place,
			wrongSecrets(record, options.Secrets))
	case stopped && !(record.Outcome.Stopped && !options.Changed && (r.until == 0 || record.Outcome.Fuel < r.until)):
		cli.Note(cmd, "stopped at fuel %d%s", outcome.Fuel, place)
		frames()
		return nil
	case errors.Is(outcome.Err, replay.ErrDamaged):
		return r.unreadable(record.Task, outcome.Err)
	case ended || stopped: // where the host had ended the run
		outcome.Kind, outcome.Message = runtime.OutcomeKind(record.Outcome.Kind), record.Outcome.Message
	case outcome.Kind == runtime.HostFault && record.Outcome.Kind != string(runtime.HostFault):
		return fmt.Errorf("internal error: %w", outcome.Err)
	case outcome.Kind == runtime.Cancelled:
		return outcome.Err
	}
	if r.until > outcome.Fuel {
		cli.Note(cmd, "it ended at fuel %d, before --until %d", outcome.Fuel, r.until)
	}
	now := outcome.Recorded()
	if now.Stopped = ended || stopped; now.Stopped {
		now.Limit = record.Outcome.Limit
	}
	if err := r.write(cmd, p, record, tape, now); err != nil {
		return err
	}
	for _, line := range tape.Sent {
		cli.Note(cmd, "%s", line)
	}
	var different []string
	if !options.Changed {
		different = differences(&record.Outcome, &now)
	} else {
		cli.Note(cmd, "the recorded module: %s", endText(&record.Outcome))
		cli.Note(cmd, "this module: %s", endText(&now))
	}
	if len(different) > 0 {
		return cli.Refusedf("the replay differs from run %d of task %s: %s%s", record.Run, record.Task,
			strings.Join(different, "; "), wrongSecrets(record, options.Secrets))
	}
	if !options.Changed {
		cli.Note(cmd, "run %d of task %s replayed: the same end at the same fuel, %d", record.Run, record.Task, outcome.Fuel)
	}
	if outcome.Kind != runtime.Complete {
		frames()
		return &cli.ExitError{Status: cli.ExitFailed, Err: fmt.Errorf("task %s failed: %s", record.Task, outcome.Message)}
	}
	return cli.WriteResult(cmd, outcome.Output, "run it again with > FILE")
}

// endText describes an outcome in a line.
func endText(o *replay.Outcome) string {
	text := o.Kind
	if o.Message != "" {
		first, _, _ := strings.Cut(o.Message, "\n")
		text += ": " + first
	}
	return fmt.Sprintf("%s (fuel %d)", text, o.Fuel)
}

// differences lists how the end of a replay differs from the recorded one.
func differences(was, is *replay.Outcome) (all []string) {
	differ := func(what string, was, is any) {
		if was != is {
			all = append(all, fmt.Sprintf("%s is %v, recorded %v", what, is, was))
		}
	}
	differ("its end", was.Kind, is.Kind)
	differ("its exit status", was.Code, is.Code)
	differ("its trap", was.Trap, is.Trap)
	differ("its error", was.Message, is.Message)
	differ("the digest of its result", was.Output, is.Output)
	differ("its fuel", was.Fuel, is.Fuel)
	return all
}
