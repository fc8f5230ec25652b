package manage_test

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func connect() *queue.Client {
	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		panic(err)
	}
	return client
}

func ExampleQueue_Stats() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	reports := client.Queue("reports")
	if _, err := reports.EnqueueMany(ctx, make([]queue.Spec, 3)); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := manage.QueueOf(reports).Stats(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, status := range queue.Statuses() {
		fmt.Println(status, stats.Depth[status])
	}
	fmt.Println("listeners", stats.Listeners, "enqueued ever", stats.Totals["enqueued"])
	// Output:
	// scheduled 0
	// pending 3
	// reserved 0
	// started 0
	// complete 0
	// failed 0
	// listeners 0 enqueued ever 3
}

func ExampleQueue_List() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	reports := client.Queue("reports")
	for _, id := range []string{"one", "two", "three"} {
		if _, err := reports.Enqueue(ctx, nil, queue.Options{ID: id}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for offset := 0; ; offset += 2 { // newest first, in pages of two
		page, err := manage.QueueOf(reports).List(ctx, manage.ListOptions{Status: queue.Pending, Offset: offset, Limit: 2})
		if err != nil || len(page) == 0 {
			fmt.Println(err)
			return
		}
		for _, task := range page {
			fmt.Println(offset/2, task.ID, task.Status)
		}
	}
	// Output:
	// 0 three pending
	// 0 two pending
	// 1 one pending
	// <nil>
}
