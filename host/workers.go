package host

import "sync"

// workers run tasks. A task needs a stack of some size, which a new goroutine would have to grow to each
// time: a good tenth of what a short task costs. So goroutines are kept, as many as there were tasks at a
// time.
type workers struct {
	run func(*task)
	// next hands a task to a goroutine that has none; closed by wait.
	next chan *task
	// tasks counts those that run, and kept the goroutines.
	tasks, kept sync.WaitGroup
}

func newWorkers(run func(*task)) *workers { return &workers{run: run, next: make(chan *task)} }

// begin runs a task on a goroutine that has none, or on a new one.
func (w *workers) begin(t *task) {
	w.tasks.Add(1)
	select {
	case w.next <- t:
	default:
		w.kept.Go(func() { w.work(t) })
	}
}

func (w *workers) work(t *task) {
	for ok := true; ok; t, ok = <-w.next {
		w.run(t)
		w.tasks.Done()
	}
}

// wait blocks until all tasks have ended, and ends the goroutines. Nothing may begin any more.
func (w *workers) wait() {
	w.tasks.Wait()
	close(w.next)
	w.kept.Wait()
}
