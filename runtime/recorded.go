package runtime

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/quern-project/quern/runtime/replay"
)

// Recorded returns the outcome as a record has it.
func (o *Outcome) Recorded() replay.Outcome {
	recorded := replay.Outcome{
		Kind: string(o.Kind), Code: o.Code, Trap: o.Trap, Limit: o.Limit.Name, Message: o.Message, Fuel: o.Fuel,
		Stopped: o.Kind == Cancelled || o.Kind == LimitExceeded && o.Limit.Name == "timeout",
	}
	if o.Kind == Complete {
		sum := sha256.Sum256(o.Output)
		recorded.Output = hex.EncodeToString(sum[:])
	}
	return recorded
}

// Recorded returns the limits as a record has them.
func (l *Limits) Recorded() replay.Limits {
	return replay.Limits{
		Memory: l.Memory, Input: l.Input, Output: l.Output, Log: l.Log, Timeout: l.Timeout, CPU: l.CPU, Remedies: l.Remedies,
	}
}

// ReplayProfile returns the profile of the pool in which a record is replayed, with the files of its plugin.
func ReplayProfile(record *replay.Record, options replay.Options, files *Files) Profile {
	l := record.Limits
	if !options.Changed {
		l.Timeout = 0 // this machine can be slower than the recorded one; the record itself ends
	}
	return Profile{
		Tenant: record.Tenant, Env: record.Env, Files: files, Config: record.Config, Entry: record.Entry, Warm: record.Warm,
		Limits: Limits{
			Memory: l.Memory, Input: l.Input, Output: l.Output, Log: l.Log, Timeout: l.Timeout, CPU: l.CPU, Remedies: l.Remedies,
		},
		Tape: record.Start(options),
	}
}

// ReplayCall returns the call that replays a record with the tape, for the caller to complete.
func ReplayCall(record *replay.Record, tape *replay.Tape) Call {
	return Call{
		TaskID: record.Task, Queue: record.Queue, Plugin: record.Plugin, Attempt: record.Attempt,
		MaxAttempts: record.MaxAttempts, Reschedules: record.Reschedules, PreviousError: record.PreviousError,
		Parent: record.Parent, Key: record.Key, Traceparent: record.Traceparent, Headers: record.Headers,
		Input: record.Input, Checkpoint: tape.Checkpoint(), Tape: tape,
	}
}
