// Package page serves the page on which a person sees and controls a fleet. The page is one HTML document with its
// style and JavaScript modules, all embedded in the program. It gets everything from the API, and reads a bounded
// amount for each view. It stores only the token, in the browser's tab.
//
// # Security
//
// What producers and handlers wrote is shown as text. No module parses HTML. The policy below forbids inline code,
// eval, frames, foreign sources and, by trusted types, any assignment of HTML. The token travels in a header that only
// the page's own code sets, so a request from another site has no token. The API refuses requests from other sites even
// if it has no tokens.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

//go:embed index.html *.js *.css
var files embed.FS

// policy is the Content-Security-Policy. Pictures that a task made are shown from blobs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
}

// file is one of the page's files.
type file struct {
	text      []byte
	kind, tag string
}

// Page serves the files. New makes a Page; the zero value serves nothing.
type Page struct{ files map[string]file }

// New reads the embedded files.
func New() *Page {
	p := &Page{make(map[string]file)}
	names, _ := fs.Glob(files, "*") // the pattern is valid
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		sum := sha256.Sum256(text)
		p.files["/"+name] = file{text, types[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	p.files["/"] = p.files["/index.html"]
	return p
}

// Serve answers a request if it asks for a file of the page, and reports whether it did.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request) bool {
	f, ok := p.files[r.URL.Path]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // with the ETag, asking again is cheap
	h.Set("ETag", f.tag)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	_, _ = w.Write(f.text) // fails if the client is gone
	return true
}
