// Handler orders packs and ships what is ordered. Orders are publications; what is to be done with one is a flow of tasks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk"
)

// order is what is published to orders.made.
type order struct {
	Order string   `json:"order"`
	Items []string `json:"items"`
}

// Handle is what Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(handle) }

func main() { sdk.Handle(handle) }

// handle has one queue for each step.
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
	return fmt.Appendf(nil, "%s: %s\n", task.Headers()["quern-topic"], o.Order), nil // the journal's
}

// plan enqueues a task for each item, and one that ships them when all are packed. They come into being together, when this task is
// complete. Their IDs are made from the order's name: an order that is published twice is shipped once.
func plan(o order, whole []byte) error {
	var packed []string
	for i, item := range o.Items {
		id := fmt.Sprintf("%s.%d", o.Order, i+1)
		if _, err := sdk.Enqueue("pack", []byte(item), &sdk.EnqueueOptions{ID: id, Key: o.Order}); err != nil {
			return again(err)
		}
		packed = append(packed, id)
	}
	_, err := sdk.Enqueue("ship", whole, &sdk.EnqueueOptions{ID: o.Order + ".ship", Key: o.Order, After: packed})
	return again(err)
}

func pack(item string) ([]byte, error) {
	if item == "glass" {
		return nil, sdk.Fatal(errors.New("it broke"))
	}
	return fmt.Appendf(nil, "packed %s\n", item), nil
}

// ship publishes what became of the order.
func ship(o order) ([]byte, error) {
	whole, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	options := sdk.PublishOptions{ID: o.Order + ".shipped", Attributes: map[string]string{"type": "order.shipped"}}
	if _, err := sdk.Publish("orders.shipped", whole, &options); err != nil {
		return nil, again(err)
	}
	return fmt.Appendf(nil, "shipped %d items\n", len(o.Items)), nil
}

// again lets a task wait while Redis is away: no attempt is used up.
func again(err error) error {
	if errors.Is(err, sdk.ErrUnavailable) {
		return sdk.Retry(err)
	}
	return err
}
