//go:build wasip1

// Completes.
package main

//go:wasmexport quern_handle
func handle() int32 { return 0 }

func main() {}
