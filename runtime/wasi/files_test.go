package wasi

import (
	"fmt"
	"strings"
	"testing"
)

func TestNewFiles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxName)
	for name, test := range map[string]struct {
		paths []string
		want  string // what the error says, or nothing
	}{
		"none":              {nil, ""},
		"OK":                {[]string{"/a", "/b/c", "/b/d", "/ä"}, ""},
		"sorts before":      {[]string{"/a", "/a.b", "/a!"}, ""},
		"longest name":      {[]string{"/" + long}, ""},
		"relative":          {[]string{"a"}, `"a"`},
		"empty":             {[]string{""}, "not absolute"},
		"root":              {[]string{"/"}, "not absolute"},
		"dot":               {[]string{"/."}, "not absolute"},
		"dots":              {[]string{"/a/../b"}, "not absolute"},
		"slashes":           {[]string{"//a"}, "not absolute"},
		"slash at the end":  {[]string{"/a/"}, "not absolute"},
		"NUL":               {[]string{"/a\x00"}, "not absolute"},
		"invalid":           {[]string{"/\xff"}, "not absolute"},
		"below a file":      {[]string{"/a", "/a/b"}, "/a is a file"},
		"deep below a file": {[]string{"/a/b", "/a/b/c/d"}, "/a/b is a file"},
		"file after":        {[]string{"/a/b", "/a!", "/a"}, "/a is a file"},
		"long name":         {[]string{"/" + long + "x"}, "at most 255"},
		"long path":         {[]string{strings.Repeat("/"+long, 17)}, "at most 4096"},
		"checkpoint":        {[]string{"/checkpoint"}, "checkpoint"},
		"below checkpoint":  {[]string{"/checkpoint/x"}, "checkpoint"},
		"like checkpoint":   {[]string{"/checkpoints", "/a/checkpoint"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contents := map[string][]byte{}
			for _, path := range test.paths {
				contents[path] = []byte(path)
			}
			files, err := NewFiles(contents)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("NewFiles = %v, want %q", err, test.want)
			}
			if (files == nil) != (err != nil) {
				t.Errorf("NewFiles = %v beside %v", files, err)
			}
		})
	}
}

// TestInodes: two files never have the same, and they are the same in every tree of the same files.
func TestInodes(t *testing.T) {
	t.Parallel()
	contents := map[string][]byte{}
	for i := range 100 {
		contents[fmt.Sprintf("/%d/%d", i%7, i)] = nil
	}
	list := func() (inodes map[uint64]string) {
		files, err := NewFiles(contents)
		if err != nil {
			t.Fatal(err)
		}
		inodes = map[uint64]string{}
		var walk func(path string, n *node)
		walk = func(path string, n *node) {
			if other, ok := inodes[n.inode]; ok || n.inode == checkpointInode {
				t.Errorf("%s and %s have inode %d", path, other, n.inode)
			}
			inodes[n.inode] = path
			for name, child := range n.children {
				walk(path+"/"+name, child)
			}
		}
		walk("", files.root)
		return inodes
	}
	if one, two := list(), list(); fmt.Sprint(one) != fmt.Sprint(two) || len(one) != 108 {
		t.Errorf("inodes %v, then %v", one, two)
	}
}

// TestNoFiles: without files and checkpoint there is no directory.
func TestNoFiles(t *testing.T) {
	t.Parallel()
	none, err := NewFiles(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]*Files{"nil": nil, "zero": {}, "empty": none} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Files: files})
			g.answers(errnoBadf, "fd_prestat_get", 3, 0)
			g.answers(errnoBadf, "path_open", 3, 0, 0, 1, 0, 0, 0, 0, 0)
			g = setup(t, 1, Config{Files: files, Checkpoint: []byte{}})
			g.answers(errnoSuccess, "fd_prestat_get", 3, 0)
			if fd := g.open("checkpoint"); fd != 4 {
				t.Errorf("the checkpoint is descriptor %d", fd)
			}
		})
	}
}
