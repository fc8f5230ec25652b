package fetch

import (
	"context"
	"unsafe"

	"github.com/quern-project/quern/sdk"
)

//go:wasmimport quern_v1 http
//go:noescape
func http(head, body string) int32

//go:wasmimport quern_v1 result_read
//go:noescape
func resultRead(offset uint32, p *byte, n uint32) int32

// do asks the host.
func do(_ context.Context, r Request) (*Response, error) {
	head, err := format(r)
	if err != nil {
		return nil, err
	}
	size := http(view(head), view(r.Body))
	if size < 0 {
		return nil, sdk.HostError(size)
	}
	answer := make([]byte, size)
	n := resultRead(0, unsafe.SliceData(answer), uint32(len(answer)))
	if n < 0 {
		return nil, sdk.HostError(n)
	}
	return parse(answer[:n])
}

// view is the bytes as a text that is read at once and not kept.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
