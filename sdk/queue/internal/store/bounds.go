package store

import "time"

// The maximum numbers of items that one call of a script handles, so that it takes only a few milliseconds of Redis's
// time.
const (
	ExpiryTasks   = 14  // tasks of expire.lua, which may have to search for each task and make its dead letter
	PurgeTasks    = 75  // tasks of purge.lua; deleting one takes some 20 commands
	CountTasks    = 75  // tasks of finished.lua
	RecountQueues = 24  // queues of recount.lua; looking at one takes some 20 commands
	StatsQueues   = 50  // queues of look.lua
	LaneChecks    = 100 // holders and lanes of lanes.lua
	UnholdTasks   = 150 // tasks of unhold.lua
	RelistTasks   = 72  // tasks of relist.lua, which may have to put each into a line
)

// Encrypted follows the size of a record that is encrypted, in the task's field.
const Encrypted = "encrypted"

// The bounds of data in Redis, and for how long it is kept.
const (
	AuditText   = 1 << 10            // maximum bytes of one text in the audit log
	JobCount    = 100                // maximum number of jobs of a tenant
	JobLife     = 7 * 24 * time.Hour // time for which a job is kept after its last change
	LogLines    = 1000               // maximum number of lines in a task's log
	LogBytes    = 64 << 10           // maximum bytes of a task's log
	RecordBytes = 64 << 20           // maximum bytes of all records of runs of a tenant
	MaxMessage  = 1 << 10            // maximum bytes of the message of a progress report
	KeptMinutes = 6 * 60             // minutes for which the counts of a minute are kept
	KeptHours   = 2                  // hours for which the counts of an hour, by version of a plugin, are kept
	KeptDays    = 400                // days for which a tenant's usage is kept
	TallyFields = 2000               // maximum number of counts of a minute (a busy queue has some ten), or of an hour
	SampleTerm  = 10 * time.Second   // age of the sample of queue counts after which a node makes a new one
)
