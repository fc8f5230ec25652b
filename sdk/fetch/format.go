package fetch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// format returns the head of a request as quern_v1 takes it.
func format(r Request) ([]byte, error) {
	return json.Marshal(struct {
		Method  string              `json:"method"`
		URL     string              `json:"url"`
		Header  map[string][]string `json:"headers,omitempty"`
		Timeout int64               `json:"timeout_ms,omitempty"`
	}{r.Method, r.URL, r.Header, guest.Milliseconds(max(r.Timeout, 0))})
}

// parse reads a response as quern_v1 returns it: the length of the head in 4 bytes, the head, and the body.
func parse(answer []byte) (*Response, error) {
	if len(answer) < 4 || uint64(len(answer)-4) < uint64(binary.LittleEndian.Uint32(answer)) {
		return nil, errors.New("the host's answer is cut off")
	}
	n := binary.LittleEndian.Uint32(answer)
	var head struct {
		Status int                 `json:"status"`
		Header map[string][]string `json:"headers"`
	}
	if err := json.Unmarshal(answer[4:][:n], &head); err != nil {
		return nil, fmt.Errorf("the head of the host's answer: %w", err)
	}
	return &Response{Status: head.Status, Header: head.Header, Body: answer[4+n:]}, nil
}
