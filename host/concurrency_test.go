package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// queueing is a handler that counts, by its first byte, how many tasks are in it at once and how many have ended, and
// writes both. A task whose second byte is ! fails in its first attempt, and one with ? puts itself off.
func queueing(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
static char input[2];
static int64_t count(char what, int64_t by) {
	char key[2] = {what, input[0]};
	int64_t sum = 0;
	if (quern_kv_increment("counts", 6, key, 2, by, &sum)) __builtin_trap();
	return sum;
}
QUERN_HANDLER int32_t handle(void) {
	int64_t attempt = 0, putoffs = 0;
	quern_input_read(0, input, 2);
	quern_task_number(QUERN_TASK_ATTEMPT, &attempt);
	quern_task_number(QUERN_TASK_RESCHEDULES, &putoffs);
	char in = '0' + count('i', 1);
	quern_sleep(3);
	int again = input[1] == '!' && attempt == 1 ? 1 : input[1] == '?' && putoffs == 0 ? QUERN_RETRY : 0;
	int64_t ends = again ? 0 : count('e', 1);
	count('i', -1);
	if (again) {
		quern_retry_after(1);
		return again;
	}
	char text[4] = {in, ' ', '0' + ends / 10, '0' + ends % 10};
	return quern_output_write(text, sizeof text);
}`)
}

// With a concurrency in the manifest, two hosts run the tasks of a label one after another, or as many at once as it says,
// in the order in which they were enqueued, also through retries; tasks of other labels and without one run beside them.
func TestConcurrencyOfALabel(t *testing.T) {
	t.Parallel()
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	common := settings{
		server: server, tenants: []string{tenant},
		Config: Config{
			Concurrency: 8, Services: guest.Config{KV: map[string]*kv.Store{tenant: kv.New(server.Client(t), tenant)}},
		},
		guests: map[string][]byte{"one": queueing(t), "three": queueing(t)},
	}
	const manifest = "concurrency: {key: labels.customer, max: %d}\nretry: {max_attempts: 5, base: 1ms, min: 1ms}\n" +
		"capabilities: {kv: [{bucket: counts, access: rw}]}\n"
	common.yaml = map[string]string{"one": fmt.Sprintf(manifest, 1), "three": fmt.Sprintf(manifest, 3)}
	hosts := []*node{start(t, common), start(t, common)}
	n := hosts[0]
	n.serving("one", "three")
	for name, most := range map[string]int{"one": 1, "three": 3} {
		n.eventually("the rule of "+name, func() bool {
			rule, err := listen.NewRules(n.client).Of(n.ctx, name)
			return err == nil && rule != ""
		})
		const tasks = 20
		ids := map[string][]string{} // by customer; "-" has no label
		for i := range tasks {
			for _, customer := range []string{"a", "b", "-"} {
				labels := map[string]string{"customer": customer}
				if customer == "-" {
					labels = nil
				}
				input := customer
				if most > 1 { // what the guest counts
					input = strings.ToUpper(customer)
				}
				input += map[int]string{3: "!", 7: "?"}[i%10]
				ids[customer] = append(ids[customer], n.enqueueAs(name, input, queue.Options{Labels: labels}))
			}
		}
		nodes := map[string]bool{}
		for customer, all := range ids {
			for i, id := range all {
				task := n.wait(id)
				nodes[task.Node] = true
				in, ends := 0, 0
				if _, err := fmt.Sscanf(string(task.Result), "%d %d", &in, &ends); err != nil {
					t.Fatalf("%+v", task)
				}
				if customer != "-" && (in > most || most == 1 && ends != i+1) {
					t.Errorf("%s: task %d of customer %s ran beside %d others, and ended as number %d", name, i, customer, in-1, ends)
				}
			}
		}
		if len(nodes) != len(hosts) {
			t.Errorf("%s: %d hosts ran tasks", name, len(nodes))
		}
	}
}
