package wasi

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	// checkpointName is the name of the file with a call's checkpoint, in the root.
	checkpointName = "checkpoint"

	// The maximum lengths of a name and of a path, in bytes, as on most systems.
	maxName = 255
	maxPath = 4096
)

// Inodes distinguish files. They are numbered within the tree, so guests learn nothing about the host's files.
const (
	rootInode       = 1
	checkpointInode = 2
	firstInode      = 3
)

// Files is a tree of files in memory that guests can read. It never changes, and any number of calls can share it.
type Files struct {
	root *node
	size int64
}

// nodeSize is roughly the memory that a file or directory takes, in bytes, without its names and contents.
const nodeSize = 400

// Size returns roughly the memory that the tree takes, in bytes.
func (f *Files) Size() int64 { return f.size }

// Contents returns the contents of the files by path.
func (f *Files) Contents() map[string][]byte {
	contents := map[string][]byte{}
	f.root.collect("", contents)
	return contents
}

// node is a file or a directory.
type node struct {
	inode    uint64
	parent   *node  // nil for the root
	contents []byte // contents of a file

	children map[string]*node // entries of a directory by name; nil for a file
	names    []string         // names of the children, sorted
}

func newDirectory(parent *node, inode uint64) *node {
	return &node{inode: inode, parent: parent, children: map[string]*node{}}
}

func (n *node) directory() bool { return n.children != nil }

// NewFiles makes a tree from contents by absolute path, such as /data/model.bin. The contents are not copied and must
// not change any more. An error names a path that is not absolute and clean, that lies below a file, or that is
// /checkpoint or below it: /checkpoint belongs to the host.
func NewFiles(contents map[string][]byte) (*Files, error) {
	files := &Files{root: newDirectory(nil, rootInode)}
	inode := uint64(firstInode)
	// In sorted order, inodes are the same in every process, and a file comes before paths below it.
	for _, path := range slices.Sorted(maps.Keys(contents)) {
		names, err := split(path)
		if err != nil {
			return nil, err
		}
		parent := files.root
		for i, name := range names {
			child := parent.children[name]
			switch {
			case child == nil:
				child = &node{inode: inode, parent: parent, contents: contents[path]}
				if i < len(names)-1 {
					child = newDirectory(parent, inode)
				}
				inode++
				files.size += nodeSize + int64(len(name))
				parent.children[name] = child
				parent.names = append(parent.names, name)
			case !child.directory():
				return nil, fmt.Errorf("path %q of a file: /%s is a file, no directory", path, strings.Join(names[:i+1], "/"))
			}
			parent = child
		}
		files.size += int64(len(path) + len(contents[path]))
	}
	files.root.sort()
	return files, nil
}

// Over returns a tree with the files of f and base. A file of f hides a file of base at the same path, and all files of
// base below that path. A directory of f hides a file of base at the same path. f or base can be nil.
func (f *Files) Over(base *Files) *Files {
	if f == nil || base == nil {
		return cmp.Or(f, base)
	}
	all, upper := base.Contents(), f.Contents()
	hides := func(contents map[string][]byte, file string) bool {
		for ; file != "/"; file = path.Dir(file) {
			if _, found := contents[file]; found {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(all, func(file string, _ []byte) bool { return hides(upper, file) })
	for file := range upper {
		for above := path.Dir(file); above != "/"; above = path.Dir(above) {
			delete(all, above)
		}
	}
	maps.Copy(all, upper)
	union, err := NewFiles(all)
	if err != nil {
		panic(err) // each path was valid in a tree, and no path is below a file now
	}
	return union
}

// collect adds the contents of the files below the directory to contents, by path. at is the directory's path.
func (n *node) collect(at string, contents map[string][]byte) {
	for name, child := range n.children {
		if at := at + "/" + name; child.directory() {
			child.collect(at, contents)
		} else {
			contents[at] = child.contents
		}
	}
}

// sort sorts the names in the directory and in all directories below it.
func (n *node) sort() {
	slices.Sort(n.names)
	for _, child := range n.children {
		child.sort()
	}
}

// split returns the names in an absolute path.
func split(path string) ([]string, error) {
	relative, ok := strings.CutPrefix(path, "/")
	if !ok || relative == "." || !fs.ValidPath(relative) || strings.Contains(relative, "\x00") {
		return nil, fmt.Errorf("path %q of a file: not absolute and clean, such as /data/model.bin", path)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("path %.64q… of a file: %d bytes, at most %d", path, len(path), maxPath)
	}
	names := strings.Split(relative, "/")
	for _, name := range names {
		if len(name) > maxName {
			return nil, fmt.Errorf("path %.64q… of a file: a name of %d bytes, at most %d", path, len(name), maxName)
		}
	}
	if names[0] == checkpointName {
		return nil, fmt.Errorf("path %q of a file: /%s is where a task finds its checkpoint", path, checkpointName)
	}
	return names, nil
}

// walk follows a path from a directory. There are no symbolic links. A name before a slash must be a directory. If only
// the last name does not exist, the result is nil without an error: a writable file system could create it.
func (s *System) walk(dir *node, path []byte) (*node, errno) {
	n, depth := dir, 0
	for len(path) > 0 {
		name, rest, slash := bytes.Cut(path, []byte("/"))
		path = rest
		switch string(name) {
		case "", ".":
			continue
		case "..":
			if depth == 0 {
				return nil, errnoPerm
			}
			depth--
			n = n.parent
			continue
		}
		if len(name) > maxName {
			return nil, errnoNametoolong
		}
		depth++
		if n == s.root && s.checkpoint != nil && string(name) == checkpointName {
			n = s.checkpoint
		} else {
			n = n.children[string(name)]
		}
		if n == nil {
			if len(bytes.Trim(rest, "/")) > 0 {
				return nil, errnoNoent
			}
			return nil, errnoSuccess
		}
		if slash && !n.directory() {
			return nil, errnoNotdir
		}
	}
	return n, errnoSuccess
}
