package fetch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/sdktest"
)

// A handler asks another service, and comes again later if that is away.
func Example() {
	handler := func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		answer, err := fetch.Get(ctx, "https://api.example.com/cities/"+string(task.Input))
		if err != nil {
			return nil, sdk.Retry(err)
		}
		if err := answer.Err(); err != nil {
			return nil, err
		}
		var city struct{ Name string }
		err = json.Unmarshal(answer.Body, &city)
		return []byte(city.Name), err
	}

	h := sdktest.New(&testing.T{}) // of a test
	h.HTTP = sdktest.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cities/7":
			fmt.Fprint(w, `{"name": "Basel"}`)
		default:
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	fmt.Printf("%s\n", h.Run(handler, sdktest.Task{Input: []byte("7")}).Result)
	fmt.Println(h.Run(handler, sdktest.Task{Input: []byte("8")}))
	// Output:
	// Basel
	// retry: the answer has status 429 (retry after 30s)
}
