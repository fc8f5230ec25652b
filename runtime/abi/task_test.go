package abi

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func TestInput(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		off, at, room uint64
		want          errno
		holds         string // at at
	}{
		"OK":                {0, 100, 5, 5, "input"},
		"OKMoreRoom":        {0, 100, 500, 5, "input"},
		"OKLessRoom":        {0, 100, 2, 2, "in"},
		"OKOffset":          {2, 100, 500, 3, "put"},
		"OKOffsetLess":      {2, 100, 1, 1, "p"},
		"OKLastByte":        {4, 65535, 1, 1, "t"},
		"OKEnd":             {5, 100, 500, 0, ""},
		"OKBehindEnd":       {6, 100, 500, 0, ""},
		"OKFarBehindEnd":    {0xffffffff, 100, 500, 0, ""},
		"OKUpperBits":       {0xffffffff_00000001, 0xffffffff_00000064, 0xffffffff_00000002, 2, "np"},
		"OKNoRoom":          {0, 100, 0, 0, ""},
		"OKNoRoomWild":      {0, 0xffffffff, 0, 0, ""},
		"OKAll":             {0, 0, 65536, 5, "input"},
		"ErrFault":          {0, 65532, 5, errnoFault, ""},
		"ErrFaultUnneeded":  {0, 100, 65437, errnoFault, ""},
		"ErrFaultAtEnd":     {5, 65536, 1, errnoFault, ""},
		"ErrFaultOverflow":  {0, 0xffffffff, 2, errnoFault, ""},
		"ErrFaultOverflow2": {0, 0xfffffffb, 5, errnoFault, ""},
		"ErrFaultOverflow3": {0, 100, 0xffffffff, errnoFault, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for function, c := range map[string]Config{"input_read": {Input: []byte("input")}, "result_read": {Task: Task{Queue: "input"}}} {
				g := setup(t, 1, c)
				g.call("task_text", 1)
				g.answers(tt.want, function, tt.off, tt.at, tt.room)
				g.holds(int(uint32(tt.at))&0xffff, tt.holds)
				if g.host.spent != len(tt.holds) {
					t.Errorf("%s of %d bytes cost %d", function, len(tt.holds), g.host.spent)
				}
			}
		})
	}
}

func TestInputSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 3 << 20} {
		setup(t, 0, Config{Input: make([]byte, size)}).answers(errno(size), "input_size")
	}
	if got := length(math.MaxInt32); got != math.MaxInt32 {
		t.Errorf("%d", got)
	}
	if got := length(math.MaxInt32 + 1); got != errnoTooBig {
		t.Errorf("more than an answer can say is %d", got)
	}
}

// TestPieces: a large move is paid for piece by piece, and what the host ends in between is not moved to
// its end.
func TestPieces(t *testing.T) {
	t.Parallel()
	input := bytes.Repeat([]byte("0123456789abcdef"), (2*piece+16)/16)
	g := setup(t, 48, Config{Input: input})
	g.answers(errno(len(input)), "input_read", 0, 16, 3*piece-16)
	g.holds(16, string(input))
	if g.host.spent != len(input) || g.host.most != piece {
		t.Errorf("%d bytes cost %d, at most %d at once", len(input), g.host.spent, g.host.most)
	}
	g.clear()
	g.host.budget, g.host.spent = 2*piece-1, 0
	if p := ending(func() { g.call("input_read", 0, 0, 3*piece) }); p != errBroke {
		t.Errorf("panics with %v", p)
	}
	g.holds(0, string(input[:piece]))
	// Output is charged in pieces as well, but comes whole.
	g.host.budget, g.host.spent, g.host.most, g.host.limit = 0, 0, 0, 2*piece
	g.answers(0, "output_write", 5, 2*piece)
	if g.host.spent != 2*piece || g.host.most != piece || g.host.writes != 1 || g.host.output.Len() != 2*piece {
		t.Errorf("%d bytes in %d writes cost %d, at most %d at once", g.host.output.Len(), g.host.writes, g.host.spent, g.host.most)
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{})
	g.host.limit = 10
	g.put(100, "0123456789ab")
	g.answers(0, "output_write", 100, 4)
	g.answers(0, "output_write", 0xffffffff, 0)
	g.answers(errnoTooBig, "output_write", 100, 7)
	if got := g.host.output.String(); got != "0123" {
		t.Errorf("output %q", got)
	}
	g.answers(0, "output_write", 104, 6)
	g.answers(errnoTooBig, "output_write", 100, 1)
	g.answers(0, "output_write", 65536, 0)
	for _, a := range [][2]uint64{{65535, 2}, {65536, 1}, {0xffffffff, 1}, {0xffffffff, 2}, {1, 0xffffffff}, {0x80000000, 0x80000000}} {
		g.answers(errnoFault, "output_write", a[0], a[1])
	}
	if got := g.host.output.String(); got != "0123456789" || g.host.writes != 4 {
		t.Errorf("output %q in %d writes", got, g.host.writes)
	}
	if g.host.spent != 4+7+6+1 {
		t.Errorf("cost %d", g.host.spent)
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxError)
	tests := map[string]struct{ set, want string }{
		"OK":           {"no paper", "no paper"},
		"OKEmpty":      {"", ""},
		"OKControl":    {"a\x1b[1m\n\x00b", "a\x1b[1m\n\x00b"}, // the runtime's to escape
		"OKLongest":    {long, long},
		"OKTooLong":    {long + "y", long},
		"OKVeryLong":   {strings.Repeat(long, 3), long},
		"OKCutRune":    {long[:maxError-1] + "ü", long[:maxError-1]},
		"OKCutRune4":   {long[:maxError-3] + "😀😀", long[:maxError-3]},
		"OKWholeRune":  {long[:maxError-2] + "üy", long[:maxError-2] + "ü"},
		"OKInvalid":    {"a\xffb\xc3", "a\xffb\xc3"},
		"OKAllInvalid": {strings.Repeat("\x80", 2*maxError), strings.Repeat("\x80", maxError)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{})
			if text, said := g.system.Error(); text != "" || said {
				t.Errorf("%q before anything was said", text)
			}
			at, n := g.put(7, tt.set)
			g.answers(0, "error_set", at, n)
			if g.host.spent > maxError || g.host.spent < min(len(tt.set), maxError-3) {
				t.Errorf("%d bytes cost %d", len(tt.set), g.host.spent)
			}
			g.clear()
			if text, said := g.system.Error(); text != tt.want || !said {
				t.Errorf("%.40q (%d bytes), %v; want %.40q (%d)", text, len(text), said, tt.want, len(tt.want))
			}
		})
	}
	t.Run("OKLastWins", func(t *testing.T) {
		t.Parallel()
		g := setup(t, 1, Config{})
		g.put(0, "a long text")
		g.answers(0, "error_set", 0, 11)
		g.answers(0, "error_set", 2, 4)
		if text, _ := g.system.Error(); text != "long" {
			t.Errorf("%q", text)
		}
		g.answers(0, "error_set", 0xffffffff, 0)
		if text, said := g.system.Error(); text != "" || !said {
			t.Errorf("%q, %v", text, said)
		}
	})
	t.Run("ErrFault", func(t *testing.T) {
		t.Parallel()
		g := setup(t, 1, Config{})
		for _, a := range [][2]uint64{{65535, 2}, {65536, 1}, {0xffffffff, 1}, {0xfffffff0, 0x20}, {1, 65536}, {0, 0xffffffff}} {
			g.answers(errnoFault, "error_set", a[0], a[1])
		}
		if _, said := g.system.Error(); said || g.host.spent != 0 {
			t.Error("something was set")
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	g := setup(t, 0, Config{})
	for _, tt := range []struct {
		ms     int64
		answer errno
		want   time.Duration
	}{
		{1, 0, time.Millisecond},
		{90_000, 0, 90 * time.Second},
		{-90_000, 0, 90 * time.Second},
		{math.MinInt64, 0, 365 * 24 * time.Hour},
		{365*24*3600*1000 - 1, 0, 365*24*time.Hour - time.Millisecond},
		{365 * 24 * 3600 * 1000, 0, 365 * 24 * time.Hour},
		{365*24*3600*1000 + 1, 0, 365 * 24 * time.Hour},
		{math.MaxInt64, 0, 365 * 24 * time.Hour},
		{0, 0, 0},
	} {
		g.answers(tt.answer, "retry_after", uint64(tt.ms))
		if got := g.system.RetryAfter(); got != tt.want || g.system.HoldKey() != (tt.ms < 0) {
			t.Errorf("after %d ms it is %v, want %v", tt.ms, got, tt.want)
		}
	}
}

func TestTaskText(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Task: Task{
		ID: "id", Queue: "the queue", Tenant: "tenant ü", Plugin: "plugin", PreviousError: "previous\x00error", Parent: "parent", Key: "",
		Traceparent: "00-1", Headers: map[string]string{"x-b": "2: ü", "x-a": "", "traceparent": "00-1"},
	}})
	g.answers(0, "result_read", 0, 100, 500) // of a slot that nothing has filled
	g.holds(0, "")
	for field, want := range []string{"id", "the queue", "tenant ü", "plugin", "previous\x00error", "parent", "", "00-1", "traceparent: 00-1\nx-a: \nx-b: 2: ü\n"} {
		g.answers(errno(len(want)), "task_text", uint64(field))
		g.answers(errno(len(want)), "result_read", 0, 100, 500)
		g.holds(100, want)
		g.clear()
	}
	for _, field := range []uint64{11, 12, 0x7fffffff, 0xffffffff} {
		g.answers(errnoInval, "task_text", field)
	}
}

// TestSlot: it lasts until another call fills it, and is read from wherever and as often as one likes.
func TestSlot(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Task: Task{ID: "identity", Queue: "q"}, Input: []byte("input")})
	reads := func(want string) {
		t.Helper()
		for off := range len(want) {
			g.answers(errno(len(want)-off), "result_read", uint64(off), 100, 50)
			g.holds(100, want[off:])
			g.clear()
		}
		g.answers(0, "result_read", uint64(len(want)), 100, 50)
	}
	g.answers(8, "task_text", 0)
	reads("identity")
	reads("identity")
	// Neither what succeeds without filling it nor what fails changes it.
	g.answers(5, "input_size")
	g.answers(5, "input_read", 0, 0, 50)
	g.answers(0, "output_write", 0, 3)
	g.answers(0, "error_set", 0, 3)
	g.answers(0, "task_number", 0, 0)
	g.answers(0, "clock", 0, 0)
	g.answers(0, "random", 0, 8)
	g.answers(errnoInval, "task_text", 11)
	g.answers(errnoFault, "result_read", 0, 65536, 1)
	g.clear()
	reads("identity")
	g.answers(1, "task_text", 1)
	reads("q")
	g.answers(0, "task_text", 6)
	reads("")
}

func TestTaskNumber(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2030, 1, 2, 3, 4, 5, 6_999_999, time.UTC)
	for name, tt := range map[string]struct {
		task Task
		fuel int64
		want [5]int64
	}{
		"OK":          {Task{Attempt: 2, MaxAttempts: 5, Reschedules: 7, Deadline: deadline}, 12345, [5]int64{2, 5, deadline.Unix()*1000 + 6, 12345, 7}},
		"OKUnbounded": {Task{Attempt: 1}, math.MaxInt64, [5]int64{1, 0, 0, math.MaxInt64}},
		"OKLarge":     {Task{Attempt: 1 << 40, MaxAttempts: 1 << 41}, 0, [5]int64{1 << 40, 1 << 41, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Task: tt.task})
			g.host.fuel = tt.fuel
			for field, want := range tt.want {
				g.put(96, strings.Repeat("\xaa", 16))
				g.answers(0, "task_number", uint64(field), 100)
				if got := g.get64(100); got != want {
					t.Errorf("number %d is %d, want %d", field, got, want)
				}
				if string(g.get(96, 4)) != "\xaa\xaa\xaa\xaa" || string(g.get(108, 4)) != "\xaa\xaa\xaa\xaa" {
					t.Error("wrote outside")
				}
				g.answers(0, "task_number", uint64(field), 65528)
				g.clear()
				for _, at := range []uint64{65529, 65536, 0xfffffff8, 0xffffffff} {
					g.answers(errnoFault, "task_number", uint64(field), at)
				}
				g.holds(0, "")
			}
			for _, field := range []uint64{5, 0x80000000, 0xffffffff} {
				g.answers(errnoInval, "task_number", field, 100)
				g.answers(errnoInval, "task_number", field, 65536)
			}
			g.holds(0, "")
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	g := setup(t, 0, Config{})
	g.answers(0, "cancelled")
	ending := make(chan struct{})
	close(ending)
	g.system.Ending = ending
	g.answers(1, "cancelled")
}
