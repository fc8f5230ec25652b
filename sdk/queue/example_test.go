package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// connect stands in for queue.New("redis://127.0.0.1:6379/0", queue.Config{}): the examples run on a
// Redis of the tests' own, each with a tenant of its own.
func connect() *queue.Client {
	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		panic(err)
	}
	return client
}

func Example() {
	client := connect() // queue.New("redis://127.0.0.1:6379/0", queue.Config{})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// A worker, usually in another process on another machine.
	ended := make(chan error)
	go func() {
		ended <- worker.Run(ctx, client, "greetings", func(_ context.Context, task *queue.Task) ([]byte, error) {
			return fmt.Appendf(nil, "Hello, %s!", task.Parameters), nil
		})
	}()

	// A producer.
	id, err := client.Queue("greetings").Enqueue(ctx, []byte("Ada"), queue.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := client.Wait(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", task.Status, task.Result)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// complete: Hello, Ada!
	// <nil>
}

func ExampleNew() {
	// The user and the password are escaped: a "/" in it is %2F. See Connect for TLS and Sentinel.
	client, err := queue.New("rediss://worker:pass%2Fword@redis.example.com:6380/0", queue.Config{Tenant: "acme"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // nothing was dialed yet
	fmt.Println(client.Tenant())

	_, err = queue.New("redis.example.com:6379", queue.Config{})
	fmt.Println(errors.Is(err, queue.ErrInvalid))
	// Output:
	// acme
	// true
}

func ExampleRedact() {
	fmt.Println(queue.Redact("redis://worker:secret@redis.example.com:6379/0"))
	// Output: redis://worker:xxxxx@redis.example.com:6379/0
}

func ExampleClient_Queue() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	thumbnails := client.Queue("thumbnails")
	for _, photo := range []string{"a.jpg", "b.jpg", "c.jpg"} {
		if _, err := thumbnails.Enqueue(ctx, []byte(photo), queue.Options{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	pending, err := manage.QueueOf(thumbnails).Count(ctx, queue.Pending)
	fmt.Println(thumbnails.Name(), pending, err)
	// Output: thumbnails 3 <nil>
}

func ExampleClient_Queues() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	if _, err := client.Queue("thumbnails").Enqueue(ctx, nil, queue.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	listeners, err := client.Queues(ctx)
	fmt.Println(listeners, err)
	// Output: map[thumbnails:0] <nil>
}

func ExampleClient_Task() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	id, err := client.Queue("mail").Enqueue(ctx, []byte("ada@example.com"), queue.Options{
		Key: "order 4711", Labels: map[string]string{"kind": "receipt"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := client.Task(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s %q %s\n", task.Status, task.Parameters, task.Key, task.Labels["kind"])

	_, err = client.Task(ctx, "no-such-task")
	fmt.Println(errors.Is(err, queue.ErrNoTask))
	// Output:
	// pending ada@example.com "order 4711" receipt
	// true
}

// With an ID of one's own, enqueueing may be repeated until an answer comes.
func ExampleQueue_Enqueue() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	invoices := client.Queue("invoices")
	for range 2 {
		id, err := invoices.Enqueue(ctx, []byte("4711"), queue.Options{ID: "invoice-4711"})
		fmt.Println(id, err)
	}
	pending, err := manage.QueueOf(invoices).Count(ctx, queue.Pending)
	fmt.Println(pending, err)
	// Output:
	// invoice-4711 <nil>
	// invoice-4711 <nil>
	// 1 <nil>
}

// Many tasks go in blocks of 1,000, each written as a whole and announced once.
func ExampleQueue_EnqueueMany() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	specs := make([]queue.Spec, 2500)
	for i := range specs {
		specs[i] = queue.Spec{Parameters: fmt.Appendf(nil, "frame %d", i), Options: queue.Options{ID: fmt.Sprint("frame-", i)}}
	}
	receipts, err := client.Queue("frames").EnqueueMany(ctx, specs)
	if err != nil { // the same specs may be enqueued again, without doubling one
		fmt.Println(err)
		return
	}
	fmt.Println(len(receipts), receipts[0].ID)
	// Output: 2500 frame-0
}

func ExampleOptions_at() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	noon := time.Date(2100, 1, 1, 12, 0, 0, 0, time.UTC)
	reports := client.Queue("reports")
	id, err := reports.Enqueue(ctx, []byte("yearly"), queue.Options{At: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := client.Task(ctx, id)
	fmt.Println(task.Status, task.ETA.UTC().Format(time.DateTime), err)

	// A delay is counted by Redis's clock, not by this machine's.
	id, err = reports.Enqueue(ctx, []byte("in a minute"), queue.Options{Delay: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err = client.Task(ctx, id)
	fmt.Println(task.Status, task.ETA.Sub(task.Created).Round(time.Second), err)
	// Output:
	// scheduled 2100-01-01 12:00:00 <nil>
	// scheduled 1m0s <nil>
}

func ExampleQueue_Cancel() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	reports := client.Queue("reports")
	id, err := reports.Enqueue(ctx, nil, queue.Options{Delay: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	done, err := reports.Cancel(ctx, id)
	fmt.Println(done, err)
	task, err := client.Task(ctx, id)
	fmt.Println(task.Status, task.Failure().Reason, err)
	_, err = reports.Cancel(ctx, id)
	fmt.Println(errors.Is(err, queue.ErrStatus)) // it is finished
	// Output:
	// true <nil>
	// failed cancelled <nil>
	// true
}

func ExampleQueue_Delete() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	reports := client.Queue("reports")
	id, err := reports.Enqueue(ctx, nil, queue.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(errors.Is(reports.Delete(ctx, id), queue.ErrStatus)) // it is not finished
	_, err = reports.Cancel(ctx, id)
	fmt.Println(err, reports.Delete(ctx, id))
	// Output:
	// true
	// <nil> <nil>
}

func ExampleClient_Wait() {
	client := connect()
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("nobody works here"))
	defer cancel()

	id, err := client.Queue("mail").Enqueue(ctx, nil, queue.Options{ID: "mail-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Wait(ctx, id)
	fmt.Println(err)
	// Output: wait for task mail-1: nobody works here
}

// One publication makes a task for each subscriber that it matches; each has its own attempts, result and dead letter.
func ExampleClient_Publish() {
	ctx := context.Background()
	client := connect()
	defer client.Close()
	for _, s := range []queue.Subscription{
		{ID: "index", Topic: "orders.*", Queue: "index"},
		{ID: "german", Topic: "orders.*", Queue: "mail", Filter: queue.Filter{Data: map[string]any{"/country": "DE"}}, Dead: "mail.dead"},
	} {
		if _, err := client.Subscribe(ctx, s); err != nil {
			fmt.Println(err)
		}
	}
	for _, country := range []string{"DE", "FR"} {
		published, err := client.Publish(ctx, "orders.made", []byte(`{"country":"`+country+`"}`), queue.PublishOptions{ID: "order-" + country})
		fmt.Println(published.ID, published.Subscribers, err)
	}
	tasks, err := manage.New(client).PublicationTasks(ctx, "order-DE", 0, 10)
	for _, task := range tasks {
		fmt.Println(task.Subscription, task.Queue, task.Status)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-DE 2 <nil>
	// order-FR 1 <nil>
	// german mail pending
	// index index pending
}
