package plugin

import (
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

// answers answers the HTTP requests of a test's task, in place of servers.
type answers struct {
	given   []manifest.Answer
	used    map[int]bool // indexes in given
	denied  bool         // a request was denied
	missing []string     // one line for each request that no answer matches
}

// unused returns a line for each answer that no request asked for.
func (a *answers) unused() (lines []string) {
	for i, one := range a.given {
		if !a.used[i] {
			lines = append(lines, fmt.Sprintf("no request for the answer to %s %s (number %d in http of this test): remove it, or correct its method and url",
				one.Method, one.URL, i+1))
		}
	}
	return lines
}

// answer returns the first answer to the request that was not given yet, or else the last one.
func (a *answers) answer(r service.Request) (service.Response, error) {
	found := -1
	for i, one := range a.given {
		if one.Method == r.Method && one.URL == r.URL {
			if found = i; !a.used[i] {
				break
			}
		}
	}
	if found < 0 {
		a.missing = append(a.missing, fmt.Sprintf(
			"no answer to %s %s: add to http of this test: - {method: %s, url: %q, status: 200, body: \"\"}",
			r.Method, r.URL, r.Method, r.URL))
		err := fmt.Errorf("%w: http of this test has no answer", service.ErrUnavailable)
		return service.Response{}, &service.Confidential{Err: err, Told: err.Error()}
	}
	a.used[found] = true
	headers := map[string][]string{}
	for name, value := range a.given[found].Headers {
		headers[name] = []string{value}
	}
	return service.Response{
		Status: a.given[found].Status, Headers: headers, Body: []byte(a.given[found].Body),
	}, nil
}
