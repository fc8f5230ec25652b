package store

import "time"

// How many items one script looks at, for a few milliseconds of Redis's time.
const (
	ExpiryTasks   = 16  // each may have to be searched for, and need a dead letter
	PurgeTasks    = 75  // forgetting one takes some 20 commands
	RecountQueues = 100 // of a recount
	StatsQueues   = 50  // of a count
)

// What is kept, and for how long.
const (
	AuditText   = 1 << 10            // the most bytes of one text in the audit log
	JobCount    = 100                // jobs of a tenant
	JobLife     = 7 * 24 * time.Hour // after a job's last change
	LogLines    = 1000               // of a task
	LogBytes    = 64 << 10           // of a task
	MaxMessage  = 1 << 10            // the most bytes of the message of a progress report
	KeptMinutes = 6 * 60             // of the counts of tasks by minute
	KeptHours   = 2                  // of the counts of plugins' versions
	TallyFields = 2000               // the most counts of a minute, which are some ten for a busy queue, and of an hour
	SampleTerm  = 10 * time.Second   // the age of a sample after which a node counts anew
)
