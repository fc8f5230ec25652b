//go:build !wasip1

package fetch

import (
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/internal/native"
)

// host sends the requests of a handler that runs as native code, in a test. The host of sdktest implements it.
type host interface {
	HTTP(r Request) (*Response, error)
}

func do(r Request) (*Response, error) {
	if h, ok := native.Current().(host); ok {
		return h.HTTP(r)
	}
	return nil, sdk.ErrNoHost
}
