package host

import "time"

// How fast one task may write checkpoints, in bytes: 8 MiB at once, and then 1 MiB a second, of which each save takes 10 KiB
// at least. A guest that saves faster waits in the call, which answers when Redis has the value: to keep back what was
// answered for, and write the last alone, would lose it with the host.
const (
	checkpointBurst = 8 << 20
	checkpointRate  = 1 << 20
	checkpointLeast = 10 << 10
)

// pace spreads what costs something over time. Its zero value has its whole burst.
type pace struct {
	paid time.Time // until when the rate has paid for what was taken
}

// take books a checkpoint of so many bytes, and returns how long to wait before it is written.
func (p *pace) take(now time.Time, bytes int) time.Duration {
	const second = float64(time.Second)
	if earliest := now.Add(-time.Duration(checkpointBurst * second / checkpointRate)); p.paid.Before(earliest) {
		p.paid = earliest
	}
	p.paid = p.paid.Add(time.Duration(float64(max(bytes, checkpointLeast)) * second / checkpointRate))
	return max(0, p.paid.Sub(now))
}
