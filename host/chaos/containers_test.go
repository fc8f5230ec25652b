package chaos

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Hosts in containers may have one hostname, and all have the process ID 1. They work side by side, and
// when one dies its tasks are taken from it and from nobody else; the same when its container is
// started anew.
func TestContainers(t *testing.T) {
	beside(t)
	const slots = 8
	s := settings{hosts: 3, concurrency: slots, lease: 2 * time.Second, grace: time.Second, patience: 2 * time.Minute}
	s.within = container(t)
	f := newFleet(t, s)
	var orders []order // every slot has one, when the host dies and when its lease is over
	for i := range s.hosts * slots {
		orders = append(orders, order{id: fmt.Sprintf("task-%02d", i), queue: queues[i%len(queues)], manner: "ok", takes: 3 * f.lease})
	}
	f.begin(orders)
	before := f.listeners()
	alike := make(map[string]bool) // what hostname and process ID alone would make of them
	for _, id := range before {
		name, rest, random := strings.Cut(id, "~")
		_, pid, numbered := strings.Cut(rest, "_")
		if !random || !numbered {
			t.Errorf("listener %s has no random part", id)
		}
		if s.within == nil {
			pid = "1"
		}
		alike[name+"_"+pid] = true
	}
	if len(alike) != 1 || !strings.HasSuffix(slices.Collect(maps.Keys(alike))[0], "_1") {
		t.Errorf("the hosts are %v, want one hostname and process ID 1", before)
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(before))); len(unique) != len(f.hosts) {
		t.Errorf("two hosts are one listener: %v", before)
	}
	victim := f.hosts[0]
	died := victim.process()
	f.suffer([]fault{{kind: killed, victim: victim.name, length: f.lease / 2}}, nil) // back before its lease is over

	f.settled(len(orders))
	l := f.audit(orders)
	held := 0
	for _, o := range orders {
		runs := f.journal.of(o.id)
		switch first := runs[0]; {
		case first.process == died && first.outcome == "":
			held++
			if len(runs) != 2 || runs[1].process == died {
				l.blame("task %s of the dead host did not run once more: %v", o.id, runs)
			}
		case len(runs) != 1:
			l.blame("task %s, which the dead host did not have, ran again: %v", o.id, runs)
		}
	}
	if l.crashes != slots || held != slots {
		l.blame("%d tasks count a crash, and the dead host had %d, want %d", l.crashes, held, slots)
	}
	tasks := 0.0
	for _, h := range f.hosts {
		dead, taken, err := h.process().reclaimed()
		if err != nil || slices.ContainsFunc(dead, func(id string) bool { return id != before[0] }) {
			l.blame("%s took %v for dead, only %s is (%v)", h.name, dead, before[0], err)
		}
		tasks += taken
	}
	if tasks != slots {
		l.blame("the hosts count %v tasks that they took from the dead one, want %d", tasks, slots)
	}
	after := f.listeners()
	if !slices.Equal(after[1:], before[1:]) || after[0] == before[0] {
		l.blame("the listeners are %v, and were %v: want the first one anew", after, before)
	}
	l.complain()
	t.Logf("%v; %d tasks of the dead host ran elsewhere", before, held)
}

// container is a command that runs another one as a container would, in namespaces of its own: with
// process ID 1, and a hostname that all of them have. Who is not root needs a user namespace for that.
// Where no namespace is to be had it is nil, and the test's hosts are told apart by their process IDs,
// too.
func container(t *testing.T) []string {
	t.Helper()
	var why []string
	for _, user := range [][]string{nil, {"--user", "--map-root-user"}} {
		command := slices.Concat([]string{"unshare", "--fork", "--kill-child", "--pid", "--uts"}, user,
			[]string{"sh", "-c", `hostname quern && exec "$@"`, "container"})
		probe := append(slices.Clone(command), "sh", "-c", `echo "$(hostname) $$"`)
		out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput()
		if err == nil && string(out) == "quern 1\n" {
			return command
		}
		why = append(why, fmt.Sprintf("%v: %v: %s", probe, err, out))
	}
	t.Logf("no namespaces are to be had here: the hosts have process IDs of their own\n%s", strings.Join(why, "\n"))
	return nil
}
