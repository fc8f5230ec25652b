package host

import "sync"

// underway counts what a session has begun and not ended: tasks, and one round trip of reserves at a time.
type underway struct {
	mu        sync.Mutex
	count     int  // guarded by mu
	reserving bool // guarded by mu
	// ended is made by close, and closed by whoever ends the last one; guarded by mu.
	ended chan struct{}
}

// begin begins a round of reserves, unless one is on its way, or none may begin any more.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended != nil || u.reserving {
		return false
	}
	u.count, u.reserving = u.count+1, true
	return true
}

// reserved is the end of a round of reserves.
func (u *underway) reserved() {
	u.mu.Lock()
	u.reserving = false
	u.mu.Unlock()
	u.end()
}

// busy tells whether a round of reserves is on its way.
func (u *underway) busy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reserving
}

// add counts a task, which a round of reserves has brought that has not ended.
func (u *underway) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
}

// end is the end of a task.
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
