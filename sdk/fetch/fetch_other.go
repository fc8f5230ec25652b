//go:build !wasip1

package fetch

import (
	"context"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/internal/native"
)

// do asks the host of sdktest.
func do(ctx context.Context, r Request) (*Response, error) {
	h := native.Current()
	if h == nil {
		return nil, sdk.ErrNoHost
	}
	answer, err := h.HTTP(ctx, native.Request(r))
	if err != nil {
		return nil, err
	}
	response := Response(answer)
	return &response, nil
}
