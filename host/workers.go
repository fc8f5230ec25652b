package host

import "sync"

// workers runs tasks, or reserves, on goroutines that it keeps. A new goroutine would have to grow its stack for each
// task, which takes a good tenth of the time of a short task. It keeps as many goroutines as tasks ever ran at the same
// time.
type workers struct {
	// next hands a task to an idle goroutine; closed by wait.
	next chan func()
	// tasks counts the running ones, and kept the goroutines.
	tasks, kept sync.WaitGroup
}

// run runs a task on an idle goroutine, or on a new one if none is idle.
func (w *workers) run(task func()) {
	w.tasks.Add(1)
	select {
	case w.next <- task:
	default:
		w.kept.Go(func() {
			for next, ok := task, true; ok; next, ok = <-w.next {
				next()
				w.tasks.Done()
			}
		})
	}
}

// wait blocks until all tasks have ended, and ends the goroutines. run must not be called any more.
func (w *workers) wait() {
	w.tasks.Wait()
	close(w.next)
	w.kept.Wait()
}
