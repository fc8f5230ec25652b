package queue

// Status is the state of a task. Blueque has the same six.
type Status string

// A task goes scheduled → pending → reserved → started → complete or failed.
const (
	Scheduled Status = "scheduled"
	Pending   Status = "pending"
	Reserved  Status = "reserved"
	Started   Status = "started"
	Complete  Status = "complete"
	Failed    Status = "failed"
)

// Statuses lists all statuses, in the order of a task's life.
func Statuses() []Status { return []Status{Scheduled, Pending, Reserved, Started, Complete, Failed} }

// Finished reports whether the status is Complete or Failed: such a task neither waits nor runs.
func (s Status) Finished() bool { return s == Complete || s == Failed }
