package worker_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func connect() *queue.Client {
	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		panic(err)
	}
	return client
}

func ExampleRun() {
	client := connect()
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	mail := client.Queue("mail")
	for _, address := range []string{"ada@example.com", "nowhere"} {
		if _, err := mail.Enqueue(ctx, []byte(address), queue.Options{ID: address}); err != nil {
			fmt.Println(err)
			return
		}
	}
	ended := make(chan error)
	go func() {
		ended <- worker.Run(ctx, client, "mail", func(_ context.Context, task *queue.Task) ([]byte, error) {
			if !strings.Contains(string(task.Parameters), "@") {
				return nil, fmt.Errorf("%q is no address", task.Parameters)
			}
			return []byte("sent"), nil
		})
	}()
	for _, id := range []string{"ada@example.com", "nowhere"} {
		task, err := client.Wait(ctx, id)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q %q\n", task.Status, task.Result, task.Failure().Message)
	}
	cancel() // as signal.NotifyContext does at a Ctrl-C
	fmt.Println(<-ended)
	// Output:
	// complete "sent" ""
	// failed "" "\"nowhere\" is no address"
	// <nil>
}

// Blueque's own way: listen, start, complete or fail. Run does all of this.
func ExampleListener() {
	client := connect()
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	listener, err := worker.NewListener(ctx, client, "encode")
	if err != nil {
		fmt.Println(err)
		return
	}
	lease := make(chan error)
	go func() { lease <- listener.Run(ctx) }() // keeps the listener's lease

	if _, err := client.Queue("encode").Enqueue(ctx, []byte("film.mov"), queue.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	task, err := listener.Listen(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	processor := worker.NewProcessor(client, task)
	parameters, err := processor.Start(ctx, os.Getpid())
	if err != nil { // ErrLost: it is another's meanwhile
		fmt.Println(err)
		return
	}
	fmt.Println(processor.Complete(ctx, append(parameters, ".mp4"...)))

	none, err := listener.TryListen(ctx)
	fmt.Println(none == nil, err)
	fmt.Println(listener.Close(ctx))
	cancel()
	fmt.Println(<-lease)
	// Output:
	// <nil>
	// true <nil>
	// <nil>
	// <nil>
}

func ExampleProcessor() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	listener, err := worker.NewListener(ctx, client, "encode")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close(ctx)
	id, err := client.Queue("encode").Enqueue(ctx, []byte("film.mov"), queue.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := listener.TryListen(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	processor := worker.NewProcessor(client, task)
	if _, err := processor.Start(ctx, 0); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(processor.Fail(ctx, queue.Failure{Message: "no codec for film.mov"}))

	task, err = client.Task(ctx, id)
	fmt.Println(task.Status, task.Error, err)
	// Output:
	// <nil>
	// failed {"reason":"error","message":"no codec for film.mov"} <nil>
}
