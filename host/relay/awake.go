package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/host/postgres"
)

// awakeLocker holds the lock that spares writers the notifications while the relay is awake. It must wait for the lock,
// because writers hold it, shared, until they commit; while it waits, no further writer gets it.
type awakeLocker struct {
	address *postgres.Address
	cancel  context.CancelFunc // nil while nobody holds or wants the lock
	done    chan struct{}      // closed when the lock is given back, or cannot be taken
	began   time.Time          // when take last tried
}

func (a *awakeLocker) held() bool { return a.cancel != nil }

// keepAlive lets the server notice within half a minute that the connection is cut, and give the lock back.
const keepAlive = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"

// take begins to wait for the lock. It does nothing if the lock is held, and little if it failed within tryInterval.
func (a *awakeLocker) take(ctx context.Context) {
	if a.held() {
		select {
		case <-a.done:
			a.release()
		default:
			return
		}
	}
	if time.Since(a.began) < tryInterval {
		return
	}
	a.began = time.Now()
	ctx, a.cancel = context.WithCancel(ctx)
	a.done = make(chan struct{})
	go func(done chan<- struct{}) {
		defer close(done)
		conn, err := a.address.Connect(ctx, "quern relay, awake")
		if err != nil {
			return // writers notify, and pay for it
		}
		defer conn.Close() // gives the lock back
		if conn.Script(ctx, keepAlive) != nil {
			return
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_lock(%d)", awakeLock)); err == nil {
			_, _ = conn.Wait(ctx) // until ctx ends, or the connection does
		}
	}(a.done)
}

// release gives the lock back.
func (a *awakeLocker) release() {
	if a.held() {
		a.cancel()
		<-a.done
		a.cancel = nil
	}
}
