package upkeep

import (
	"errors"
	"testing"
	"time"
)

func TestSteadiness(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second
	begin := time.Unix(1_700_000_000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	type beat struct {
		at, took float64
		err      error
	}
	away := errors.New("away")
	for name, test := range map[string]struct {
		beats []beat
		now   float64
		want  bool
		late  int // renewals that came late
	}{
		"no renewal yet":                   {nil, 100, false, 0},
		"less than a lease":                {[]beat{{at: 0}, {at: 3}, {at: 6}}, 8, false, 0},
		"a whole lease":                    {[]beat{{at: 0}, {at: 3}, {at: 6}, {at: 9}}, 9, true, 0},
		"the last one is long ago":         {[]beat{{at: 0}, {at: 3}, {at: 6}, {at: 9}}, 16, false, 0},
		"one failed":                       {[]beat{{at: 0}, {at: 3, err: away}, {at: 6}, {at: 9}, {at: 12}}, 12, false, 0},
		"a lease after the failure":        {[]beat{{at: 0}, {at: 3, err: away}, {at: 6}, {at: 9}, {at: 12}, {at: 15}}, 15, true, 0},
		"one took too long":                {[]beat{{at: 0}, {at: 3}, {at: 6, took: 4}, {at: 12}}, 12, false, 1},
		"a pause between (it was stopped)": {[]beat{{at: 0}, {at: 3}, {at: 6}, {at: 13}}, 13, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, late := NewSteadiness(lease), 0
			for _, b := range test.beats {
				if s.Renewed(at(b.at), at(b.at+b.took), b.err) {
					late++
				}
			}
			if late != test.late {
				t.Errorf("%d renewals came late, want %d", late, test.late)
			}
			if got := s.steady(at(test.now)); got != test.want {
				t.Errorf("may reclaim: %v, want %v", got, test.want)
			}
		})
	}
}
