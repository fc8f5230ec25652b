package listen_test

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func connect() *queue.Client {
	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		panic(err)
	}
	return client
}

// Hosts move due tasks by themselves; a program does where there is none.
func ExampleFleet_EnqueueDue() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	reports := client.Queue("reports")
	if _, err := reports.Enqueue(ctx, nil, queue.Options{Delay: time.Hour}); err != nil {
		fmt.Println(err)
		return
	}
	block, err := listen.NewFleet(client).EnqueueDue(ctx, reports.Name())
	fmt.Println(block.Tasks, block.More, err)
	// Output: 0 false <nil>
}
