// Handler book books orders of an ERP in the databases of its customers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/quern-project/quern/sdk"
)

// books is the database of the customer whom the task's header names.
const books = sdk.Database("books")

// order is what the ERP's trigger enqueues.
type order struct {
	Number int64 `json:"number"`
	Amount int64 `json:"amount"` // cents
}

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(book) }

func main() { sdk.Handle(book) }

// book books an order. All that it does happens when the task completes, or not at all.
func book(_ context.Context, task *sdk.Task) ([]byte, error) {
	var o order
	if err := json.Unmarshal(task.Input, &o); err != nil || o.Number <= 0 {
		return nil, sdk.Fatal(errors.New(`an order is {"number": 1, "amount": 1250}`))
	}
	if _, err := books.Exec("INSERT INTO bookings VALUES ($1, $2)", o.Number, o.Amount); err != nil {
		return nil, err
	}
	if _, err := books.Exec("UPDATE balance SET total = total + $1", o.Amount); err != nil {
		return nil, err
	}
	if faults, _ := strconv.Atoi(os.Getenv("FAULTS")); rand.IntN(100) < faults {
		return nil, errors.New("the books fell off the table")
	}
	number := strconv.FormatInt(o.Number, 10)
	_, err := sdk.Publish("orders.booked", task.Input, &sdk.PublishOptions{ID: "booked-" + number})
	return []byte(number), err
}
