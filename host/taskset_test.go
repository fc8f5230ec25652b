package host

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// An ID that is handed out a third time, after the second one went back, waits for the first one, whichever ends when.
func TestReplacedAgain(t *testing.T) {
	t.Parallel()
	set := &taskSet{tasks: make(map[string]*task)}
	handed := func() *task {
		one := &task{Reservation: listen.Reservation{ID: "a"}}
		set.add(one)
		return one
	}
	first := handed()
	var stopped error
	set.begin(first, func(why error) { stopped = why })

	second := handed()
	third := handed()
	set.ran(second) // it went back without a run
	set.remove(second)
	set.begin(third, func(error) {})
	wait := set.waitsFor(third)
	if wait == nil || stopped == nil {
		t.Fatalf("the third may run beside the first, which was stopped by %v", stopped)
	}
	select {
	case <-wait:
		t.Fatal("the third may run beside the first")
	default:
	}
	set.ran(third) // it went back, too
	set.remove(third)
	set.ran(first)
	fourth := handed() // before the first is settled
	if set.begin(fourth, func(error) {}); set.waitsFor(fourth) != nil {
		t.Error("the fourth waits for a run that is over")
	}
	<-wait
}
