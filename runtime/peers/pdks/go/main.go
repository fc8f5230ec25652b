//go:build wasip1

// Command go is a plugin built with Extism's PDK for Go.
package main

import (
	"bytes"

	"github.com/extism/go-pdk"
)

//go:wasmexport echo
func echo() int32 {
	pdk.Output(pdk.Input())
	return 0
}

// words counts the words of its input, and adds the number to a variable of the task.
//
//go:wasmexport words
func words() int32 {
	separator, ok := pdk.GetConfig("separator")
	if !ok {
		separator = " "
	}
	words := bytes.Split(pdk.Input(), []byte(separator))
	if len(words) < 2 {
		pdk.SetErrorString("too few words")
		return 3
	}
	pdk.SetVarInt("sum", pdk.GetVarInt("sum")+len(words))
	pdk.Log(pdk.LogInfo, "counted")
	if err := pdk.OutputJSON(map[string]int{"words": len(words), "sum": pdk.GetVarInt("sum")}); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

func main() {}
