package host

import "sync"

// workers runs tasks and reserves, as functions, on goroutines that it keeps. A new goroutine for each
// task would have to grow its stack, which takes over a tenth of the time of a short task. workers keeps as many
// goroutines as functions ever ran at the same time.
type workers struct {
	// next hands a function to an idle goroutine; wait closes it.
	next chan func()
	// tasks counts the functions that run, and kept counts the goroutines.
	tasks, kept sync.WaitGroup
}

// run runs a function on an idle goroutine, or on a new one if none is idle.
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

// wait blocks until all functions have returned, and ends the goroutines. run must not be called any more.
func (w *workers) wait() {
	w.tasks.Wait()
	close(w.next)
	w.kept.Wait()
}
