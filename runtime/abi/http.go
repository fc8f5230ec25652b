package abi

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// maxHead is the maximum size of a request's head, in bytes.
const maxHead = 128 << 10

// values are the values of a header. A guest can write a single value as a string.
type values []string

func (v *values) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*v = make(values, 1)
		return json.Unmarshal(data, &(*v)[0])
	}
	return json.Unmarshal(data, (*[]string)(v))
}

// parseRequest reads the head of a request.
func parseRequest(head []byte) (service.Request, error) {
	var fields struct {
		Method  string            `json:"method"`
		URL     string            `json:"url"`
		Headers map[string]values `json:"headers"`
		Timeout int64             `json:"timeout_ms"`
	}
	switch err := strictly(head, &fields); {
	case err != nil:
		return service.Request{}, fmt.Errorf("the request's head: %w", err)
	case fields.URL == "":
		return service.Request{}, fmt.Errorf("the request's head: no url")
	case fields.Timeout < 0:
		return service.Request{}, fmt.Errorf("the request's head: timeout_ms is %d", fields.Timeout)
	}
	request := service.Request{
		Method: cmp.Or(fields.Method, "GET"), URL: fields.URL, Headers: map[string][]string{},
		Timeout: time.Duration(min(fields.Timeout, maxDelay.Milliseconds())) * time.Millisecond,
	}
	for name, list := range fields.Headers {
		request.Headers[name] = list
	}
	return request, nil
}

// formatResponse encodes a response for the guest. Names of headers become lower case.
func formatResponse(r service.Response) []byte {
	head := struct {
		Status  int                 `json:"status"`
		Headers map[string][]string `json:"headers"`
	}{r.Status, map[string][]string{}}
	for name, list := range r.Headers {
		name = strings.ToLower(name)
		head.Headers[name] = append(head.Headers[name], list...)
	}
	text, _ := json.Marshal(head) // strings and numbers cannot fail
	answer := make([]byte, 4, 4+len(text)+len(r.Body))
	binary.LittleEndian.PutUint32(answer, uint32(len(text)))
	return append(append(answer, text...), r.Body...)
}
