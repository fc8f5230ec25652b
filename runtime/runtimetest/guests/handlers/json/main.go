//go:build wasip1

// Handler json parses its input, an order in JSON, adds up what the order costs and weighs, and writes the order with
// the sums. It returns 65 if the input is not JSON. See JSON in handlers.go.
package main

import (
	"encoding/json"
	"unsafe"
)

//go:wasmimport quern_v1 input_size
func inputSize() int32

//go:wasmimport quern_v1 input_read
func inputRead(offset uint32, to unsafe.Pointer, capacity uint32) int32

//go:wasmimport quern_v1 output_write
func outputWrite(from unsafe.Pointer, size uint32) int32

func input() []byte {
	p := make([]byte, inputSize())
	inputRead(0, unsafe.Pointer(unsafe.SliceData(p)), uint32(len(p)))
	return p
}

func output(p []byte) { outputWrite(unsafe.Pointer(unsafe.SliceData(p)), uint32(len(p))) }

// ---- the same for all hosts

type order struct {
	ID       string   `json:"id"`
	Customer customer `json:"customer"`
	Lines    []line   `json:"lines"`
	Paid     bool     `json:"paid"`
	Note     *string  `json:"note"`
	Total    int      `json:"total"`
	Weight   int      `json:"weight"`
}

type customer struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

type line struct {
	SKU      string `json:"sku"`
	Title    string `json:"title"`
	Quantity int    `json:"quantity"`
	Price    int    `json:"price"`
	Weights  []int  `json:"weights"`
}

//go:wasmexport quern_handle
func handle() int32 {
	var o order
	if json.Unmarshal(input(), &o) != nil {
		return 65
	}
	o.Total, o.Weight = 0, 0
	for _, l := range o.Lines {
		o.Total += l.Quantity * l.Price
		for _, weight := range l.Weights {
			o.Weight += l.Quantity * weight
		}
	}
	written, err := json.Marshal(o)
	if err != nil {
		return 65
	}
	output(written)
	return 0
}

func main() {}
