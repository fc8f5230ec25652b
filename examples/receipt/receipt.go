// Handler receipt is a Quern plugin that starts once and then handles many tasks. A task's input is an order in JSON,
// its result a receipt as a page of HTML.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"

	"github.com/quern-project/quern/sdk"
)

//go:embed receipt.html
var source string

// page is parsed when the plugin starts, so no task spends time on that. At the first execution html/template also
// finds out how to escape each value. With warm in the manifest, a call before all tasks does that.
var page = template.Must(template.New("receipt").Funcs(template.FuncMap{"money": money}).Parse(source))

// order is the task's input. Prices are in cents.
type order struct {
	Number   string
	Customer string
	Lines    []line
}

type line struct {
	Title    string
	Quantity int
	Price    int
}

func (l line) Cost() int { return l.Quantity * l.Price }

func (o order) Total() int {
	total := 0
	for _, l := range o.Lines {
		total += l.Cost()
	}
	return total
}

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(receipt) }

// main is for go run and go test.
func main() { sdk.Handle(receipt) }

// receipt makes the page. An order that cannot be read fails for good: another attempt would read the same bytes.
func receipt(_ context.Context, task *sdk.Task) ([]byte, error) {
	var o order
	if err := json.Unmarshal(task.Input, &o); err != nil {
		return nil, sdk.Fatal(fmt.Errorf("the order cannot be read: %w", err))
	}
	if err := o.check(); err != nil {
		return nil, sdk.Fatal(err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, o); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// check refuses an order that a receipt cannot show.
func (o order) check() error {
	if len(o.Lines) == 0 {
		return errors.New("the order has no lines")
	}
	for i, l := range o.Lines {
		if l.Quantity < 1 || l.Quantity > 1_000_000 || l.Price < 0 || l.Price > 1_000_000_00 {
			return fmt.Errorf("line %d is %d times %d cents: the quantity may be 1 to 1000000, the price 0 to 100000000", i+1,
				l.Quantity, l.Price)
		}
	}
	return nil
}
