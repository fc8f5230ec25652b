package plugin

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

// answers answers the HTTP requests of a test's task, in place of servers.
type answers struct {
	given   []manifest.Answer
	used    map[int]bool // indexes in given
	missing []string     // one line for each request that no answer matches
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

// fillBuckets gives the buckets these values, by bucket and key, and no others.
func (l *loaded) fillBuckets(ctx context.Context, values map[string]map[string]string) error {
	l.embedded.FlushAll()
	for _, bucket := range slices.Sorted(maps.Keys(values)) {
		grants := []kv.Grant{{Bucket: bucket, Write: true, Quota: math.MaxInt64}}
		store := l.services.KV[l.local.tenant].For(grants, nil)
		for _, key := range slices.Sorted(maps.Keys(values[bucket])) {
			if err := store.Set(ctx, bucket, key, []byte(values[bucket][key]), 0); err != nil {
				return err
			}
		}
	}
	return nil
}
