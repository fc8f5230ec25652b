package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestKV(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	store := kv.New(server.Client(t), "acme").For([]kv.Grant{{Bucket: "thumbs", Write: true, Quota: 1 << 20}, {Bucket: "seen", Write: true, Quota: 1 << 20}})
	for _, key := range []string{"a.jpg", "b.jpg", "c.png"} {
		if err := store.Set(t.Context(), "thumbs", key, []byte("bytes of "+key), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Set(t.Context(), "seen", "x", []byte("\x00\xff"), 0); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "redis://"+server.Addr()+"/0")
	for args, want := range map[string]result{
		"ls":         {exitDone, "TENANT  BUCKET  KEYS  BYTES\nacme    seen    1     3\nacme    thumbs  3     57\n", ""},
		"ls -o json": {exitDone, `[{"tenant":"acme","bucket":"seen","keys":1,"bytes":3},{"tenant":"acme","bucket":"thumbs","keys":3,"bytes":57}]` + "\n", ""},
		"ls thumbs":  {exitDone, "KEY\na.jpg\nb.jpg\nc.png\n", ""},
		"ls thumbs --after a.jpg --limit 1 -o json": {exitDone, `["b.jpg"]` + "\n", ""},
		"ls thumbs --prefix c":                      {exitDone, "KEY\nc.png\n", ""},
		"ls none -o json":                           {exitDone, "[]\n", ""},
		"get thumbs a.jpg":                          {exitDone, "bytes of a.jpg", ""},
		"get seen x":                                {exitDone, "\x00\xff", ""},
	} {
		r := u.run(append([]string{"kv", "--tenant", "acme"}, strings.Fields(args)...)...)
		if strings.HasSuffix(args, "-o json") {
			r.stdout = strings.NewReplacer(" ", "").Replace(strings.ReplaceAll(r.stdout, "\n ", "")) // however it is indented
		}
		if r != want {
			t.Errorf("%s: %+v, want %+v", args, r, want)
		}
	}
	if r := newUser(t, "redis://127.0.0.1:1/0").run("kv", "ls"); r.status != exitRefused || r.stdout != "" {
		t.Errorf("without Redis: %+v", r)
	}
	for args, want := range map[string]int{"get thumbs none": exitRefused, "ls thumbs --limit 0": exitUsage, "get thumbs": exitUsage} {
		r := u.run(append([]string{"kv", "--tenant", "acme"}, strings.Fields(args)...)...)
		if r.status != want || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want exit %d and one line", args, r, want)
		}
	}
}
