package wasi

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// after and ready are subscriptions.
func after(userdata uint64, clock uint32, timeout time.Duration, flags uint16) []byte {
	b := make([]byte, subscriptionSize)
	le.PutUint64(b, userdata)
	le.PutUint32(b[16:], clock)
	le.PutUint64(b[24:], uint64(timeout))
	le.PutUint16(b[40:], flags)
	return b
}

func ready(userdata uint64, event byte, fd uint32) []byte {
	b := make([]byte, subscriptionSize)
	le.PutUint64(b, userdata)
	b[8] = event
	le.PutUint32(b[16:], fd)
	return b
}

func TestPoll(t *testing.T) {
	t.Parallel()
	const forever = math.MaxInt64
	now := time.Duration(time.Now().UnixNano())
	for name, test := range map[string]struct {
		subscriptions [][]byte
		want          errno
		events        string // userdata:type:errno:bytes
		least, most   time.Duration
	}{
		"nothing":        {nil, errnoInval, "", 0, 0},
		"relative":       {[][]byte{after(7, 1, 20, 0)}, 0, " 7:0:0:0", 20, 20},
		"wall":           {[][]byte{after(7, 0, 20, 0)}, 0, " 7:0:0:0", 20, 20},
		"absolute":       {[][]byte{after(7, 1, 2*time.Hour, 1)}, 0, " 7:0:0:0", time.Minute, time.Hour},
		"absolute wall":  {[][]byte{after(7, 0, now+time.Hour, 1)}, 0, " 7:0:0:0", time.Minute, time.Hour},
		"past":           {[][]byte{after(7, 0, 1, 1)}, 0, " 7:0:0:0", 0, 0},
		"forever":        {[][]byte{after(7, 1, -1, 0)}, 0, " 7:0:0:0", forever, forever},
		"first":          {[][]byte{after(7, 1, -1, 0), after(6, 1, 1000, 0)}, 0, " 6:0:0:0", 1000, 1000},
		"both":           {[][]byte{after(7, 1, 9, 0), after(6, 1, 9, 0)}, 0, " 7:0:0:0 6:0:0:0", 9, 9},
		"stdin":          {[][]byte{after(7, 1, -1, 0), ready(8, eventFdRead, 0)}, 0, " 8:1:0:2", 0, 0},
		"stdout":         {[][]byte{ready(8, eventFdWrite, 1), after(7, 1, -1, 0)}, 0, " 8:2:0:1", 0, 0},
		"file":           {[][]byte{ready(8, eventFdRead, 4)}, 0, " 8:1:0:10", 0, 0},
		"directory":      {[][]byte{ready(8, eventFdRead, 3)}, 0, " 8:1:0:1", 0, 0},
		"no file":        {[][]byte{ready(8, eventFdRead, 5), ready(9, eventFdWrite, 0xffffffff)}, 0, " 8:1:8:0 9:2:8:0", 0, 0},
		"tag":            {[][]byte{ready(8, 3, 0)}, errnoInval, "", 0, 0},
		"cpu clock":      {[][]byte{after(7, 2, 1, 0)}, errnoInval, "", 0, 0},
		"flags":          {[][]byte{after(7, 1, 1, 2)}, errnoInval, "", 0, 0},
		"flags and file": {[][]byte{ready(8, eventFdRead, 0), after(7, 1, 1, 2)}, errnoInval, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Files: tree(t), Stdin: []byte("in"), Started: time.Now().Add(-time.Hour)})
			g.open("dir/one")
			g.host.spent = 0
			for _, out := range []uint64{4000, 1000} { // the second time events lie over subscriptions
				g.put(1000, string(slices.Concat(test.subscriptions...)))
				g.u32(0, 99)
				g.host.waited = nil
				g.answers(test.want, "poll_oneoff", 1000, out, uint64(len(test.subscriptions)), 0)
				if test.want != errnoSuccess {
					if g.get32(0) != 99 || g.host.waited != nil {
						t.Error("a failure waited or answered")
					}
					continue
				}
				events := ""
				for i := range g.get32(0) {
					e := g.get(uint32(out)+i*eventSize, eventSize)
					events += fmt.Sprintf(" %d:%d:%d:%d", le.Uint64(e), e[10], le.Uint16(e[8:]), le.Uint64(e[16:]))
				}
				if events != test.events {
					t.Errorf("events%s, want%s", events, test.events)
				}
				if w := g.host.waited; len(w) != 1 || w[0] < test.least || w[0] > test.most {
					t.Errorf("waited %v, want from %v to %v", w, test.least, test.most)
				}
			}
			if want := 2 * len(test.subscriptions) * (subscriptionSize + eventSize); g.host.spent != want {
				t.Errorf("spent %d, want %d", g.host.spent, want)
			}
		})
	}
}

func TestPollBounds(t *testing.T) {
	t.Parallel()
	g := setup(t, 6, Config{})
	g.answers(errnoSuccess, "poll_oneoff", 16, 16, maxSubscriptions, 0)
	g.answers(errnoInval, "poll_oneoff", 16, 16, maxSubscriptions+1, 0)
	g.answers(errnoFault, "poll_oneoff", 16, 16, 0x10000000, 0) // times 48 and times 32 it is 0 in 32 bits
	g.answers(errnoFault, "poll_oneoff", 6<<16-47, 16, 1, 0)
	g.answers(errnoFault, "poll_oneoff", 16, 6<<16-31, 1, 0)
	g.answers(errnoFault, "poll_oneoff", 16, 16, 1, 6<<16-3)
	if len(g.host.waited) != 1 {
		t.Errorf("waited %v", g.host.waited)
	}
}
