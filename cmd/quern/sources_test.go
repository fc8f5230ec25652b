package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A host relays the outbox of the databases of --sources, for the tenants that these name.
func TestSources(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	u := newUser(t, queuetest.Start(t).URL())
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), server.Database(t)+"\n")
	sources := write(t, filepath.Join(dir, "sources.yaml"), "- {name: shop, postgres: {file: shop.url}, tenants: [acme, blueque], hold: 10m}\n")
	url := strings.TrimSpace(string(content(t, filepath.Join(dir, "shop.url"))))
	u.must("database", "init", "--postgres", url)
	if _, err := server.Connect(t, url).Exec(t.Context(), "INSERT INTO quern.outbox (id, queue, tenant) VALUES ('one', 'q', NULL), ('two', 'q', 'blueque'), ('three', 'q', 'globex')"); err != nil {
		t.Fatal(err)
	}
	_, address := u.host(t.TempDir(), "--tenants", "blueque,acme", "--sources", sources)
	for tenant, id := range map[string]string{"acme": "one", "blueque": "two"} {
		eventually(t, "the task "+id, func() bool { return u.run("task", "show", id, "--tenant", tenant).status == exitDone })
	}
	eventually(t, "the refused row", func() bool {
		return strings.Contains(u.must("outbox", "ls", "--postgres", url), `no tenant "globex"`)
	})
	eventually(t, "the metrics", func() bool {
		_, body := get(t, "http://"+address+"/metrics")
		return strings.Contains(body, `quern_relay_rows_total{result="relayed",source="shop"} 2`) &&
			strings.Contains(body, `quern_relay_leads{source="shop"} 1`)
	})

	for text, want := range map[string]string{
		"":                         "name: shop",
		"- {name: x}":              `line 1: source "x": it has no postgres`,
		"- {postgres: {url: x}}":   "line 1: expected {file: PATH}",
		"- {postgres: {file: no}}": "no such file",
		"- {postgres: {file: shop.url}, tenants: [nobody]}":                                `tenant "nobody" is not served here`,
		"- {postgres: {file: shop.url}, holt: 1m}":                                         "holt",
		"- {name: a, postgres: {file: shop.url}}\n- {name: a, postgres: {file: shop.url}}": "line 2",
	} {
		if err := os.WriteFile(sources, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := u.run("serve", "--plugins", dir, "--sources", sources); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %q", text, r, want)
		}
	}
}
