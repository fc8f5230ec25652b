package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/importer/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun reads all pages, as an importer does.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "127.0.0.1:0", in)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	lines.Scan()
	_, url, _ := strings.Cut(lines.Text(), " records at ")
	printed := make(chan int)
	go func() {
		n := 0
		for lines.Scan() {
			n++
		}
		printed <- n
	}()

	seen, pages, cursor := map[string]bool{}, 0, ""
	for {
		var page api.Page
		if status := get(t, url+"?cursor="+cursor, &page); status != http.StatusOK || page.Total != records {
			t.Fatalf("status %d, %d records of all", status, page.Total)
		}
		pages++
		for _, record := range page.Records {
			seen[record.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != records || pages != records/pageSize {
		t.Errorf("%d records on %d pages, want %d on %d", len(seen), pages, records, records/pageSize)
	}
	for _, wrong := range []string{"x", "-1", "1001"} {
		if status := get(t, url+"?cursor="+wrong, nil); status != http.StatusBadRequest {
			t.Errorf("cursor %s: status %d", wrong, status)
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := <-printed; n != pages+3 {
		t.Errorf("%d lines for %d requests", n, pages+3)
	}
}

func get(t *testing.T, url string, page *api.Page) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if page != nil {
		if err := json.NewDecoder(response.Body).Decode(page); err != nil {
			t.Fatal(err)
		}
	}
	return response.StatusCode
}
