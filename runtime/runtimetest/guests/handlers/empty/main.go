//go:build wasip1

// Handler empty does nothing and completes.
package main

//go:wasmexport quern_handle
func handle() int32 { return 0 }

func main() {}
