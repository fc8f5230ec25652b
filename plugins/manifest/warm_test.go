package manifest

import (
	"errors"
	"testing"

	"github.com/quern-project/quern/runtime"
)

func TestParseWarm(t *testing.T) {
	t.Parallel()
	const remedy = "write one without . and .. between its slashes, such as sample.json or samples/sample.json"
	for data, want := range map[string]string{
		"warm:":                        "x.yaml:1: warm: expected a mapping, but it is empty: write its keys, such as warm: {input: sample.json}, or leave it out",
		"warm: sample.json":            "x.yaml:1: warm: expected a mapping, but it is a text: write its keys, such as warm: {input: sample.json}, or leave it out",
		"name: x\nwarm: {}":            "x.yaml:2: warm: has no input: write the path of a file with an input to warm the handler with, such as input: sample.json",
		"warm: {input: }":              "x.yaml:1: warm.input: is empty: " + remedy,
		"warm:\n  input: [a]":          "x.yaml:2: warm.input: is a list: " + remedy,
		"warm: {input: ../a}":          `x.yaml:1: warm.input: "../a" is not a path inside the folder of the manifest: ` + remedy,
		"warm: {input: /etc/hosts}":    `x.yaml:1: warm.input: "/etc/hosts" is not a path inside the folder of the manifest: ` + remedy,
		"warm: {input: a, input: b}":   "x.yaml:1: warm.input: is here a second time, after line 1: keep one of them",
		"warm: {input: a, inputs: b}":  `x.yaml:1: warm: unknown key "inputs": did you mean "input"?`,
		"warm: {input: a, timeout: 1}": `x.yaml:1: warm: unknown key "timeout": it belongs to limits, as limits.timeout`,
		"wram: {input: a}":             `x.yaml:1: unknown key "wram": did you mean "warm"?`,
	} {
		if _, err := Parse("x.yaml", []byte(data)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", data, err, want)
		}
	}
}

func TestCheckModule(t *testing.T) {
	t.Parallel()
	plain, err := Parse("x.yaml", []byte("name: x"))
	check(t, err)
	warm, err := Parse("x.yaml", []byte("name: x\nwarm:\n  input: a"))
	check(t, err)
	for _, kind := range []runtime.Kind{runtime.Handler, runtime.Command} {
		check(t, plain.CheckModule("dir/x.yaml", runtime.Info{Kind: kind}))
	}
	check(t, warm.CheckModule("dir/x.yaml", runtime.Info{Kind: runtime.Handler}))
	named, err := Parse("x.yaml", []byte("entry: _start\nwarm:\n  input: a"))
	check(t, err)
	const (
		command = "dir/x.yaml:3: warm: is for handlers, and the module is a command, which starts anew for every task: " +
			"remove it, or build the module as a handler, which exports quern_handle"
		begin = "dir/x.yaml:3: warm: is for other functions than _start, which starts anew for every task: remove it, or "
	)
	for _, test := range []struct {
		manifest Manifest
		info     runtime.Info
		want     string
	}{
		{warm, runtime.Info{Kind: runtime.Command, Entry: "_start"}, command},
		{warm, runtime.Info{Kind: runtime.Extism, Entry: "_start", Entries: []string{"_start"}}, begin + "export another function, and name it by entry"},
		{named, runtime.Info{Kind: runtime.Extism, Entry: "greet", Entries: []string{"_start", "greet"}}, begin + "write entry: greet"},
	} {
		if err := test.manifest.CheckModule("dir/x.yaml", test.info); !errors.Is(err, ErrRefused) || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}
