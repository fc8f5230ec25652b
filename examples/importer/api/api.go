// Package api is a web service of the kind that the importer reads: its records come in pages, each of which names the
// next one.
package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Record is one of the service's records.
type Record struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

// Page is the body of the service's answers.
type Page struct {
	Records []Record `json:"records"`
	Total   int      `json:"total"`          // number of records on all pages
	Next    string   `json:"next,omitempty"` // the cursor of the next page; "" on the last page
}

// Records makes n records, with ascending IDs.
func Records(n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{ID: fmt.Sprintf("record-%05d", i+1), Title: fmt.Sprintf("The %d. record", i+1)}
	}
	return records
}

// New returns a handler that serves records at every path, with size records on a page.
func New(records []Record, size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := 0
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			var err error
			if begin, err = strconv.Atoi(cursor); err != nil || begin < 0 || begin > len(records) {
				http.Error(w, "no such cursor", http.StatusBadRequest)
				return
			}
		}
		end := min(begin+size, len(records))
		page := Page{Records: records[begin:end], Total: len(records)}
		if end < len(records) {
			page.Next = strconv.Itoa(end)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page) // the client may be gone
	})
}
