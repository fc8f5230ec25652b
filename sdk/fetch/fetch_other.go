//go:build !wasip1

package fetch

import (
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/internal/native"
)

// host sends requests outside of WebAssembly. Only the host of sdktest implements it.
type host interface {
	HTTP(r Request) (*Response, error)
}

func do(r Request) (*Response, error) {
	if h, ok := native.Current().(host); ok {
		return h.HTTP(r)
	}
	return nil, sdk.ErrNoHost
}
