package admin

import (
	"encoding/json"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Job is an action on many tasks that runs in the background. Redis keeps the job for a week.
type Job struct {
	ID          string                  `json:"id"`
	Tenant      string                  `json:"tenant"`
	Action      queue.Change            `json:"action"`
	Filter      Filter                  `json:"filter"`
	By          string                  `json:"by"`
	Created     float64                 `json:"created"`
	State       manage.JobState         `json:"state" enum:"counting,counted,running,stopped,done"`
	Interrupted bool                    `json:"interrupted,omitempty" doc:"The process that worked on it has ended: start it again to go on."`
	Stopping    bool                    `json:"stopping,omitempty"`
	More        bool                    `json:"more,omitempty" doc:"More tasks passed the filter than a job may have: make another one afterwards."`
	Error       string                  `json:"error,omitempty"`
	Items       int64                   `json:"items" doc:"Tasks; final once they are counted."`
	Ended       int64                   `json:"ended" doc:"Tasks that have their end."`
	Ends        map[manage.JobEnd]int64 `json:"ends" doc:"By end: done, changed (it did not pass the filter any more), refused (the text says why), gone, failed."`
}

// JobItem is a task of a job, with the result of the action on it.
type JobItem struct {
	ID   string        `json:"id"`
	End  manage.JobEnd `json:"end,omitempty" enum:"done,changed,refused,gone,failed" doc:"Missing: it has none yet."`
	Text string        `json:"text,omitempty" doc:"Why."`
}

// Redact hides the text for which the filter searches the errors of handlers.
func (j *Job) Redact(v View) {
	if j.Filter.Error != "" && !v.Payloads {
		j.Filter.Error = "hidden"
	}
}

// NewJob converts a job to the form that operators see.
func NewJob(tenant string, j *manage.Job) Job {
	busy := j.State == manage.JobCounting || j.State == manage.JobRunning ||
		j.State == manage.JobCounted && j.Start && !j.Stop
	var filter Filter
	_ = json.Unmarshal([]byte(j.Filter), &filter) // fields that only another version knows are not shown
	return Job{
		ID: j.ID, Tenant: tenant, Action: queue.Change(j.Action), Filter: filter, By: j.By, Created: Seconds(j.Created),
		State: j.State, Interrupted: busy && !j.Claimed, Stopping: busy && j.Claimed && j.Stop, More: j.More, Error: j.Error,
		Items: j.Items, Ended: j.Ended, Ends: j.Ends,
	}
}
