// What a task mostly is: a document of 4 KB is read, changed and written.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type order struct {
	ID       string            `json:"id"`
	Customer customer          `json:"customer"`
	Lines    []line            `json:"lines"`
	Notes    []string          `json:"notes"`
	Labels   map[string]string `json:"labels"`
	Paid     bool              `json:"paid"`
	Total    float64           `json:"total"`
}

type customer struct {
	Name    string `json:"name"`
	Email   string `json:"email"`
	Address struct {
		Street, City, Country string
		Position              [2]float64
	} `json:"address"`
}

type line struct {
	SKU      string         `json:"sku"`
	Title    string         `json:"title"`
	Quantity int            `json:"quantity"`
	Price    float64        `json:"price"`
	Options  map[string]any `json:"options"`
}

func example() ([]byte, error) {
	o := order{ID: "9f4e1c52-0c1b-4f7e-9c1c-7a6f2d5a8b10", Paid: true, Labels: map[string]string{}}
	o.Customer.Name, o.Customer.Email = "Zoë \"Zed\" Ångström", "zoe@example.org"
	o.Customer.Address.Street, o.Customer.Address.City = "Långgatan 7\n2 tr", "Göteborg"
	o.Customer.Address.Position = [2]float64{57.70887, 11.97456}
	for i := range 18 {
		o.Lines = append(o.Lines, line{
			SKU: fmt.Sprintf("SKU-%06d", i*7919), Title: "Widget, " + strings.Repeat("very ", i%5) + "small <b>&</b> blue",
			Quantity: i%4 + 1, Price: float64(i)*3.35 + 0.99,
			Options: map[string]any{"gift": i%2 == 0, "size": "XL", "weights": []float64{0.5, float64(i) / 3}, "note": nil},
		})
		o.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", i)
	}
	o.Notes = []string{"Leave it at the door.", "Ring twice; the bell is weak.", strings.Repeat("Nothing else. ", 10)}
	return json.Marshal(o)
}

func run() error {
	var repeats int
	if _, err := fmt.Scan(&repeats); err != nil {
		return err
	}
	document, err := example()
	if err != nil {
		return err
	}
	sum := 0
	for i := range repeats {
		var o order
		if err := json.Unmarshal(document, &o); err != nil {
			return err
		}
		o.Total = 0
		for _, l := range o.Lines {
			o.Total += l.Price * float64(l.Quantity)
		}
		o.Lines[i%len(o.Lines)].Quantity++
		written, err := json.Marshal(o)
		if err != nil {
			return err
		}
		sum += len(written)
	}
	fmt.Println(len(document), sum)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(65)
	}
}
