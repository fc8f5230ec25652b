package host

import "sync"

// workers run tasks, or reserves, on goroutines that are kept. A new goroutine would have to grow its stack for each
// task, which takes a good tenth of the time of a short one. There are as many goroutines as there were tasks at a
// time.
type workers struct {
	// next hands a slot's first task to a goroutine that has none; closed by wait.
	next chan func()
	// tasks counts the running ones, and kept the goroutines.
	tasks, kept sync.WaitGroup
}

// run runs a task on a goroutine that has none, or on a new one.
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

// wait blocks until all tasks have ended, and ends the goroutines. Nothing may begin any more.
func (w *workers) wait() {
	w.tasks.Wait()
	close(w.next)
	w.kept.Wait()
}
