package fetch

import (
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/internal/guest"
)

//go:wasmimport quern_v1 http
//go:noescape
func http(head, body string) int32

func do(r Request) (*Response, error) {
	head, err := format(r)
	if err != nil {
		return nil, err
	}
	answer, errno := guest.Slot(http(guest.View(head), guest.View(r.Body)))
	if errno < 0 {
		return nil, guest.Because(sdk.HostError(errno), reason(r.Method, guest.Refusal()))
	}
	return parse(answer)
}
