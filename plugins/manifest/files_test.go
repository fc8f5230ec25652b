package manifest

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseFiles(t *testing.T) {
	t.Parallel()
	const (
		from   = "write one without . and .. between its slashes, such as model.bin or models/model.bin"
		to     = "write one without . and .. between its slashes, such as /data/model.bin"
		inside = " is not a path inside the folder of the manifest: " + from
		clean  = " is not an absolute and clean path: " + to
		other  = "choose another path"
	)
	long := strings.Repeat("p/", maxPath/2) + "p"
	name := strings.Repeat("n", maxName+1)
	for list, want := range map[string]string{
		"x":                                `: is a text: write a list, such as [{from: model.bin, to: /data/model.bin}]`,
		"[a]":                              `[0]: expected a mapping, but it is a text: write its keys, such as files: [{from: model.bin, to: /data/model.bin}], or leave it out`,
		"[{}]":                             `[0]: has no from: write the file's path in the folder of the manifest, such as from: model.bin; x.yaml:1: capabilities.files[0]: has no to: write where the plugin finds it, such as to: /data/model.bin`,
		"[{from: a, to: /a, mode: r}]":     `[0]: unknown key "mode": an entry has from and to`,
		"[{from: a, to: /a, to: /b}]":      `[0].to: is here a second time, after line 1: keep one of them`,
		"[{from: [a], to: /a}]":            `[0].from: is a list: ` + from,
		"[{from: /etc/hosts, to: /a}]":     `[0].from: "/etc/hosts"` + inside,
		"[{from: ../a, to: /a}]":           `[0].from: "../a"` + inside,
		"[{from: b/../a, to: /a}]":         `[0].from: "b/../a"` + inside,
		"[{from: b/, to: /a}]":             `[0].from: "b/"` + inside,
		"[{from: ., to: /a}]":              `[0].from: "."` + inside,
		`[{from: "", to: /a}]`:             `[0].from: ""` + inside,
		`[{from: "a\0", to: /a}]`:          `[0].from: "a\x00"` + inside,
		"[{from: " + long + ", to: /a}]":   `[0].from: "` + long[:maxShown] + `…"` + inside,
		"[{from: a, to: a}]":               `[0].to: "a"` + clean,
		"[{from: a, to: /" + name + "/a}]": `[0].to: "/` + name[:maxShown-1] + `…"` + clean,
		"[{from: a, to: /}]":               `[0].to: "/"` + clean,
		"[{from: a, to: /a/}]":             `[0].to: "/a/"` + clean,
		"[{from: a, to: //a}]":             `[0].to: "//a"` + clean,
		"[{from: a, to: /a/../b}]":         `[0].to: "/a/../b"` + clean,
		`[{from: a, to: "/a\e[0m"}]`:       `[0].to: "/a\x1b[0m"` + clean,
		"[{from: a, to: /checkpoint}]":     `[0].to: "/checkpoint" is where the host puts the checkpoint of a task: choose another path, such as /data/checkpoint`,
		"[{from: a, to: /checkpoint/b}]": `[0].to: "/checkpoint" is where the host puts the checkpoint of a task: ` +
			`choose another path, such as /data/checkpoint/b`,
		"[{from: a, to: /a}, {from: b, to: /a}]":                       `[1].to: "/a" is in capabilities.files[0].to already: ` + other,
		"[{from: a, to: /a/b}, {from: b, to: /a}]":                     `[0].to: "/a/b" is below the file "/a" of capabilities.files[1].to: ` + other,
		"[{from: a, to: /a}, {from: b, to: /a/b/c}]":                   `[1].to: "/a/b/c" is below the file "/a" of capabilities.files[0].to: ` + other,
		"[" + strings.Repeat("{from: a, to: /a},", maxGranted+1) + "]": ": grants 1001 files: grant at most 1000",
	} {
		_, err := Parse("x.yaml", []byte("capabilities: {files: "+list+"}"))
		if want = "x.yaml:1: capabilities.files" + want; err == nil || err.Error() != want {
			t.Errorf("%.80s\ngot  %v\nwant %v", list, err, want)
		}
	}
	var most strings.Builder
	for i := range maxGranted {
		fmt.Fprintf(&most, "{from: .a/b, to: /checkpoints/%d},", i)
	}
	m, err := Parse("x.yaml", []byte("capabilities: {files: ["+most.String()+"]}"))
	if err != nil || len(m.Capabilities.Files) != maxGranted {
		t.Errorf("%d files: %v", len(m.Capabilities.Files), err)
	}
}
