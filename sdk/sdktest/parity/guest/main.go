// Command guest is the handler of package parity.
package main

import (
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/sdktest/parity"
)

func main() { sdk.Handle(parity.Ask) }

//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(parity.Ask) }
