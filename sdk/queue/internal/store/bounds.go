package store

import "time"

// The most items that one call of a script looks at. Each call takes a few milliseconds of Redis's time.
const (
	ExpiryTasks   = 16  // of expire.lua; each task may have to be searched for, and get a dead letter
	PurgeTasks    = 75  // of purge.lua; deleting a task takes some 20 commands
	RecountQueues = 100 // of recount.lua
	StatsQueues   = 50  // of look.lua
)

// The bounds of data in Redis, and for how long it is kept.
const (
	AuditText   = 1 << 10            // bytes of one text in the audit log
	JobCount    = 100                // jobs of a tenant
	JobLife     = 7 * 24 * time.Hour // a job's life after its last change
	LogLines    = 1000               // lines of a task's log
	LogBytes    = 64 << 10           // bytes of a task's log
	MaxMessage  = 1 << 10            // bytes of the message of a progress report
	KeptMinutes = 6 * 60             // minutes for which the counts by minute are kept
	KeptHours   = 2                  // hours for which the counts of plugins' versions are kept
	TallyFields = 2000               // counts of a minute (a busy queue has some ten), and counts of an hour
	SampleTerm  = 10 * time.Second   // age of a sample after which a node counts again
)
