package main

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestGoldenTopics(t *testing.T) { overBoth(t, testGoldenTopics) }

func testGoldenTopics(t *testing.T, by over) {
	s := &transcript{user: by.user(t, queuetest.Start(t).URL())}
	s.run("topic", "ls")
	s.run("topic", "publish", "orders", `{"total": 1}`, "--id", "early")
	s.run("subscription", "create", "index", "--topic", "orders", "--queue", "index", "--max-attempts", "5", "--backoff", "linear",
		"--backoff-base", "5m", "--no-jitter", "--dead", "index.dead", "--timeout", "1m", "--priority", "70")
	s.run("subscription", "create", "german", "--topic", "ord*", "--queue", "mail", "--attribute", "tenant=acme", "--attribute", "type=order.*",
		"--data", `/customer/country="DE"`, "--data", "/total=12", "-o", "json")
	s.run("subscription", "create", "partner", "--topic", "orders", "--url", "https://partner.example/hook", "--secret", "webhook.new", "--secret", "webhook.old",
		"--header", "X-Shop=7", "--secret-header", "Authorization=webhook.token", "--timeout", "5s", "--expect", "200,204", "--body", "cloudevent", "--max-attempts", "unlimited", "--max-age", "1d")
	s.run("subscription", "create", "index", "--topic", "orders", "--queue", "index")
	s.run("subscription", "create", "wrong", "--topic", "orders", "--queue", "webhook.mine")
	s.run("subscription", "create", "wrong", "--topic", "orders", "--url", "https://ada:pw@partner.example")
	s.run("subscription", "ls")
	s.run("subscription", "ls", "--topic", "orders.eu")
	s.run("subscription", "show", "index")
	s.run("subscription", "show", "partner")
	s.run("subscription", "show", "partner", "-o", "json")
	s.run("subscription", "update", "partner", "--clear", "secrets,expect,headers,retry", "--final", "--timeout", "7s", "-o", "json")
	s.run("subscription", "update", "partner", "--clear", "everything")
	s.run("subscription", "update", "index", "--url", "https://index.example")
	s.run("subscription", "update", "index", "--clear", "filter,timeout,priority,dead")
	s.run("subscription", "show", "index", "-o", "json")
	s.run("subscription", "pause", "partner", "--reason", "they asked")
	s.run("subscription", "ls")

	const order = `{"total": 12.0, "customer": {"country": "DE"}}`
	s.run("topic", "publish", "orders", order, "--id", "one", "--attribute", "tenant=acme", "--attribute", "type=order.made",
		"--traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	s.run("topic", "publish", "orders", order, "--id", "one")
	s.run("topic", "publish", "bills", order, "--id", "one")
	s.feed("\xff\xfe", "topic", "publish", "orders", "-", "--id", "bytes", "-o", "json")
	s.run("task", "show", "pub-9b75e7c5f66e809bd71cd5cc03001ec37d72eb1c", "-o", "json")
	s.run("task", "cancel", "pub-9b75e7c5f66e809bd71cd5cc03001ec37d72eb1c")
	s.run("publication", "show", "one")
	s.run("publication", "show", "one", "-o", "json")
	s.run("publication", "show", "bytes", "-o", "json")
	s.run("publication", "ls", "orders")
	s.run("publication", "ls", "orders", "--limit", "1", "-o", "json")
	s.run("publication", "show", "two")
	s.run("topic", "ls")
	s.run("topic", "ls", "-o", "json")
	s.run("topic", "show", "orders")
	s.run("topic", "show", "orders", "-o", "json")
	s.run("topic", "show", "nothing")

	s.run("subscription", "resume", "partner")
	s.run("queue", "limit", "mail", "1")
	s.run("topic", "publish", "orders", order, "--id", "full", "--attribute", "tenant=acme", "--attribute", "type=order.made")
	s.run("topic", "publish", "orders", order, "--id", "more", "--attribute", "tenant=acme", "--attribute", "type=order.made")
	s.run("subscription", "delete", "german", "nobody", "partner")
	s.run("subscription", "ls", "-o", "json")
	golden(t, "topics", s.String())
}

// What is wrong with topics is found.
func TestDoctorTopics(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	u.must("topic", "publish", "bills", "1")
	u.must("subscription", "create", "paused", "--topic", "orders", "--queue", "q")
	u.must("subscription", "pause", "paused")
	u.must("subscription", "create", "unserved", "--topic", "mails", "--queue", "mail")
	got := u.run("doctor").stdout
	for _, want := range []string{"topic-dropped", "topic-paused", "subscription-unserved"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%s is not found once:\n%s", want, got)
		}
	}
}
