package host

import "sync"

// underway counts the reserves and the tasks of a session that have begun and not ended.
type underway struct {
	mu    sync.Mutex
	count int // guarded by mu
	// ended is made by close, and closed by whoever ends the last one; guarded by mu.
	ended chan struct{}
}

// begin counts a reserve, unless it is closed.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended != nil {
		return false
	}
	u.count++
	return true
}

// add counts a task, which a reserve has brought that is counted still.
func (u *underway) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
}

// end is the end of a reserve or a task.
func (u *underway) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count--
	if u.ended != nil && u.count == 0 {
		close(u.ended)
	}
}

// close lets no reserve begin any more. It is called once, and what it returns is closed when the last one has ended.
func (u *underway) close() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = make(chan struct{})
	if u.count == 0 {
		close(u.ended)
	}
	return u.ended
}

// open tells whether a reserve may begin.
func (u *underway) open() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended == nil
}

func (u *underway) size() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}
