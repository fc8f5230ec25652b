package queue

// Status is where a task stands; the six are Blueque's.
type Status string

// The life of a task: scheduled → pending → reserved → started → complete or failed.
const (
	Scheduled Status = "scheduled"
	Pending   Status = "pending"
	Reserved  Status = "reserved"
	Started   Status = "started"
	Complete  Status = "complete"
	Failed    Status = "failed"
)

// Statuses are all of them, in the order of a task's life.
func Statuses() []Status { return []Status{Scheduled, Pending, Reserved, Started, Complete, Failed} }

// Finished tells whether a task of this status will not change by itself any more.
func (s Status) Finished() bool { return s == Complete || s == Failed }
