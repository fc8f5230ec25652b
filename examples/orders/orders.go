// Handler orders packs and ships orders. Each order is a publication, and the work on it is a flow of tasks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk"
)

// order is a publication to the topic orders.made.
type order struct {
	Order string   `json:"order"`
	Items []string `json:"items"`
}

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(handle) }

func main() { sdk.Handle(handle) }

// handle does one step of an order. Each step has its own queue.
func handle(_ context.Context, task *sdk.Task) ([]byte, error) {
	if task.Queue == "pack" {
		return pack(string(task.Input))
	}
	var o order
	if err := json.Unmarshal(task.Input, &o); err != nil || o.Order == "" || len(o.Items) == 0 {
		return nil, sdk.Fatal(errors.New(`an order is {"order": "name", "items": ["name", ...]}`))
	}
	switch task.Queue {
	case "orders":
		return nil, plan(o, task.Input)
	case "ship":
		return ship(o)
	}
	return fmt.Appendf(nil, "%s: %s\n", task.Headers()["quern-topic"], o.Order), nil // the queue journal
}

// plan enqueues a task for each item, and one that ships the items when all are packed. These tasks are created
// together, when this task is complete. Their IDs are made from the order's name, so that an order that is published
// twice is shipped once.
func plan(o order, whole []byte) error {
	var packed []string
	for i, item := range o.Items {
		id := fmt.Sprintf("%s.%d", o.Order, i+1)
		if _, err := sdk.Enqueue("pack", []byte(item), &sdk.EnqueueOptions{ID: id, Key: o.Order}); err != nil {
			return retryLater(err)
		}
		packed = append(packed, id)
	}
	_, err := sdk.Enqueue("ship", whole, &sdk.EnqueueOptions{ID: o.Order + ".ship", Key: o.Order, After: packed})
	return retryLater(err)
}

func pack(item string) ([]byte, error) {
	if item == "glass" {
		return nil, sdk.Fatal(errors.New("it broke"))
	}
	return fmt.Appendf(nil, "packed %s\n", item), nil
}

// ship publishes that the order was shipped.
func ship(o order) ([]byte, error) {
	whole, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	options := sdk.PublishOptions{ID: o.Order + ".shipped", Attributes: map[string]string{"type": "order.shipped"}}
	if _, err := sdk.Publish("orders.shipped", whole, &options); err != nil {
		return nil, retryLater(err)
	}
	return fmt.Appendf(nil, "shipped %d items\n", len(o.Items)), nil
}

// retryLater makes a task wait for its next run while Redis is unavailable, without using up an attempt.
func retryLater(err error) error {
	if errors.Is(err, sdk.ErrUnavailable) {
		return sdk.Retry(err)
	}
	return err
}
