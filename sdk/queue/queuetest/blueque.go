package queuetest

import (
	_ "embed"
	"testing"
	"time"
)

//go:embed blueque.py
var driver string

// Blueque is a Python process with the real Blueque package. The package knows only the tenant "blueque", so each test
// that uses it needs its own server. Each method runs one command in the process. An exception in the process fails the
// test.
type Blueque struct {
	t testing.TB
	*Driver
}

// BluequeTask is a task as Blueque's get_task returns it; missing fields are nil.
type BluequeTask struct {
	ID         string
	Status     string
	Queue      string
	Parameters *string
	Result     *string
	Error      *string
	Node       *string
	PID        *int
	Created    *float64
	Updated    *float64
}

// Python starts a Python process with the Blueque package, connected to the server. The process ends with the test. If
// the package is not installed, the test fails and names the remedy.
func Python(t testing.TB, serverURL string) *Blueque {
	t.Helper()
	return &Blueque{t, StartDriver(t, "Blueque", driver, serverURL)}
}

// Enqueue calls Queue.enqueue.
func (b *Blueque) Enqueue(queue, parameters string) (id string) {
	b.t.Helper()
	b.Do(&id, "enqueue", queue, parameters)
	return id
}

// Schedule calls Queue.schedule.
func (b *Blueque) Schedule(queue, parameters string, eta time.Time) (id string) {
	b.t.Helper()
	b.Do(&id, "schedule", queue, parameters, float64(eta.UnixMicro())/1e6)
	return id
}

// EnqueueDueTasks calls Queue.enqueue_due_tasks.
func (b *Blueque) EnqueueDueTasks(queue string) {
	b.t.Helper()
	b.Do(nil, "enqueue_due_tasks", queue)
}

// DeleteTask calls Queue.delete_task.
func (b *Blueque) DeleteTask(queue, id string) {
	b.t.Helper()
	b.Do(nil, "delete_task", queue, id)
}

// Task calls Client.get_task.
func (b *Blueque) Task(id string) (task BluequeTask) {
	b.t.Helper()
	b.Do(&task, "get_task", id)
	return task
}

// Register makes the process a listener of the queue, as Client.get_listener does, and returns the listener's ID.
func (b *Blueque) Register(queue string) (listener string) {
	b.t.Helper()
	b.Do(&listener, "register", queue)
	return listener
}

// Listen calls Listener.listen, which waits for a task and reserves it.
func (b *Blueque) Listen(queue string) (task BluequeTask) {
	b.t.Helper()
	b.Do(&task, "listen", queue)
	return task
}

// ClaimOrphan calls Listener.claim_orphan. It returns nil if there is no orphan.
func (b *Blueque) ClaimOrphan(queue string) (task *BluequeTask) {
	b.t.Helper()
	b.Do(&task, "claim_orphan", queue)
	return task
}

// Start calls Processor.start for a task that Listen returned.
func (b *Blueque) Start(id string, pid int) {
	b.t.Helper()
	b.Do(nil, "start", id, pid)
}

// Complete calls Processor.complete for a task that Listen returned.
func (b *Blueque) Complete(id, result string) {
	b.t.Helper()
	b.Do(nil, "complete", id, result)
}

// Fail calls Processor.fail for a task that Listen returned.
func (b *Blueque) Fail(id, text string) {
	b.t.Helper()
	b.Do(nil, "fail", id, text)
}

// Work runs a listener in the background until the test ends. It completes each task with the result "python " and the
// task's parameters.
func (b *Blueque) Work(queue string) {
	b.t.Helper()
	b.Do(nil, "work", queue)
}

// Worked returns the IDs of the tasks that Work has completed so far.
func (b *Blueque) Worked() (ids []string) {
	b.t.Helper()
	b.Do(&ids, "get_worked")
	return ids
}
