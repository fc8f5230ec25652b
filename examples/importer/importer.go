// Handler importer is a Quern plugin that imports the records of a web service into a bucket, page by page. It keeps to
// the service's rate limit together with all other importers of its tenant, and goes on where it was if its host dies.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/typed"
)

const (
	records = sdk.Bucket("records")
	limits  = sdk.Bucket("limits")
	// patience is the timeout of a request for a page.
	patience = 20 * time.Second
)

// order is the task's input: the URL of the records.
type order struct {
	URL string `json:"url"`
}

// page is the body of the service's answers.
type page struct {
	Records []json.RawMessage `json:"records"`
	Total   int               `json:"total"` // number of records on all pages
	Next    string            `json:"next"`  // the cursor of the next page; "" for none
}

// place says how far an import has come. It is the task's checkpoint, and at the end the task's result.
type place struct {
	Cursor  string `json:"cursor,omitempty"` // the cursor of the next page; "" for the first page
	Pages   int    `json:"pages"`
	Records int    `json:"records"`
	Done    bool   `json:"done"` // true if there is no next page
}

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(typed.JSON(load)) }

func main() { sdk.Handle(typed.JSON(load)) }

func load(ctx context.Context, _ *sdk.Task, o order) (place, error) {
	service, err := url.Parse(o.URL)
	if err != nil || service.Host == "" {
		return place{}, sdk.Fatal(errors.New(`an import is {"url": "https://..."}, where the records are`))
	}
	rate, err := newLimit(service.Host)
	if err != nil {
		return place{}, err
	}
	at, err := resume()
	for err == nil && !at.Done {
		if err = rate.wait(ctx); err == nil {
			at, err = step(ctx, *service, at)
		}
	}
	if err != nil && ctx.Err() != nil {
		err = sdk.Retry(err) // the host is about to end: another host goes on, and no attempt is counted
	}
	return at, err
}

// resume returns how far the run before this one has come.
func resume() (at place, err error) {
	saved, ok, err := sdk.Checkpoint()
	if err != nil || !ok {
		return at, err
	}
	return at, json.Unmarshal(saved, &at)
}

// step imports a page: it stores the records, and then the checkpoint. If the host dies in between, the page is
// imported twice, which changes nothing: a record is stored under its own ID.
func step(ctx context.Context, service url.URL, at place) (place, error) {
	p, err := get(ctx, service, at.Cursor)
	if err != nil {
		return at, err
	}
	for _, record := range p.Records {
		if err := keep(record); err != nil {
			return at, err
		}
	}
	at = place{Cursor: p.Next, Pages: at.Pages + 1, Records: at.Records + len(p.Records), Done: p.Next == ""}
	saved, err := json.Marshal(at)
	if err != nil {
		return at, err
	}
	if err := sdk.SaveCheckpoint(saved); err != nil {
		return at, fmt.Errorf("save the checkpoint: %w", err)
	}
	sdk.Progress(float64(at.Records)/float64(max(p.Total, 1)),
		fmt.Sprintf("page %d, %d of %d records", at.Pages, at.Records, p.Total))
	return at, nil
}

func keep(record json.RawMessage) error {
	var head struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(record, &head); err != nil || head.ID == "" {
		return sdk.Fatal(fmt.Errorf("the service has a record without an id: %.100q", record))
	}
	if err := records.Set(head.ID, record, 0); err != nil {
		return fmt.Errorf("keep record %q: %w", head.ID, err)
	}
	return nil
}

// get asks the service for a page.
func get(ctx context.Context, service url.URL, cursor string) (*page, error) {
	query := service.Query()
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	service.RawQuery = query.Encode()
	answer, err := fetch.Do(ctx, fetch.Request{URL: service.String(), Timeout: patience})
	if err != nil {
		return nil, err
	}
	switch status := answer.Status; {
	case status == 429 || status == 503:
		wait, _ := answer.RetryAfter() // 0 leaves the delay to the manifest
		return nil, sdk.RetryAfter(fmt.Errorf("the service answered %d", status), wait)
	case status >= 500:
		return nil, fmt.Errorf("the service answered %d", status)
	case status != 200:
		return nil, sdk.Fatal(fmt.Errorf("the service answered %d", status))
	}
	var p page
	if err := json.Unmarshal(answer.Body, &p); err != nil {
		return nil, sdk.Fatal(fmt.Errorf("read a page: %w", err))
	}
	return &p, nil
}
