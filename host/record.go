package host

import (
	"errors"
	"hash/fnv"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// recorder records a run of a task whose manifest asks for it. A nil recorder does nothing.
type recorder struct {
	tape    *replay.Tape
	call    runtime.Call    // without its input
	outcome runtime.Outcome // of the guest, before its database has committed
}

// record begins the record of a run.
func (t *task) record(call *runtime.Call) {
	if !t.version.Manifest.Records() {
		return
	}
	t.recorder = &recorder{tape: replay.TapeOf(t.version.Permissions.Limits.Record)}
	call.Tape = t.recorder.tape
	t.recorder.call = *call
	t.recorder.call.Input = nil
}

// recordOf returns the record of a run that has ended; nil if none is to be kept. One that is too large has no bytes.
func recordOf(e *ended) (*listen.RunRecord, error) {
	t := e.task
	r := t.recorder
	if r == nil {
		return nil, nil
	}
	t.recorder = nil
	if !r.tape.Ran() || !kept(e) {
		return nil, nil
	}
	v, c, limits := t.version, &r.call, t.version.Permissions.Limits
	record := &replay.Record{
		Header: replay.Header{
			Task: t.ID, Queue: t.Queue.Name, Tenant: t.Queue.Tenant, Run: t.Run, Plugin: v.Name, Version: v.Manifest.Version,
			Release: t.release, Module: v.Digest, Manifest: v.ManifestDigest(),
			Attempt: c.Attempt, MaxAttempts: c.MaxAttempts, Reschedules: c.Reschedules, PreviousError: c.PreviousError,
			Parent: c.Parent, Key: c.Key, Traceparent: c.Traceparent, Headers: c.Headers,
			Env: v.Manifest.Capabilities.Env, Config: v.Permissions.Config, Entry: v.Manifest.Entry,
			Limits:  limits.Recorded(),
			Outcome: r.outcome.Recorded(),
		},
		Checkpoint: c.Checkpoint, Warm: v.Warm(),
	}
	var data []byte
	err := r.tape.Finish(record)
	if err == nil {
		data, err = record.Encode(int(limits.Record), v.Permissions.Recipients...)
	}
	if err != nil && !errors.Is(err, replay.ErrTooLarge) {
		return nil, err
	}
	encrypted := len(data) > 0 && len(v.Permissions.Recipients) > 0
	return &listen.RunRecord{Claim: t.Claim(), Bytes: data, Encrypted: encrypted}, nil
}

// sampled is the number of completed runs of which one is kept by manifest.RecordSampled.
const sampled = 100

// kept reports whether the record of a run is to be kept. A task that only puts itself off has not failed.
func kept(e *ended) bool {
	switch {
	case e.outcome.Kind == runtime.Cancelled && !errors.Is(e.outcome.Err, queue.ErrCancelled),
		e.settlement.Requeue == listen.RequeueReschedule:
		return false
	case e.settlement.Failure != nil:
		return true
	case e.task.version.Manifest.Record != manifest.RecordSampled:
		return false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.task.ID)) // never fails
	return h.Sum32()%sampled == 0
}
