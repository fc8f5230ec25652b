package wasi

import "github.com/tetratelabs/wazero/api"

// direntSize is the size of the header before each name in fd_readdir.
const direntSize = 24

// fdReaddir implements fd_readdir(fd, buf, buf_len, cookie, result bufused). It fills the buffer with entries. An entry
// is the cookie of the next entry, the inode, the length of the name, the filetype, and the name. An entry that does
// not fit is cut off at the end of the buffer. A buffer that is not full means that there are no more entries.
func (s *System) fdReaddir(mem api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	switch {
	case d == nil:
		return errnoBadf
	case d.kind != directory:
		return errnoNotdir
	}
	buffer, ok := view(mem, uint32(a[1]), uint64(uint32(a[2])))
	if _, fits := view(mem, uint32(a[4]), 4); !ok || !fits {
		return errnoFault
	}
	dir, used := d.node, 0
	for cookie := a[3]; used < len(buffer); cookie++ {
		name, n := s.entry(dir, cookie)
		if n == nil {
			break
		}
		var dirent [direntSize]byte
		le.PutUint64(dirent[0:], cookie+1)
		le.PutUint64(dirent[8:], n.inode)
		le.PutUint32(dirent[16:], uint32(len(name)))
		dirent[20] = filetype(n)
		s.host.Spend(direntSize + len(name))
		used += copy(buffer[used:], dirent[:])
		used += copy(buffer[used:], name)
	}
	return put32(mem, uint32(a[4]), uint32(used))
}

// entry returns the name and the node of a directory's entry at a cookie. The entries are the directory, its parent,
// the checkpoint if the directory is the root, and the children. After the last entry, entry returns a nil node.
func (s *System) entry(dir *node, cookie uint64) (string, *node) {
	switch {
	case cookie == 0:
		return ".", dir
	case cookie == 1 && dir.parent != nil:
		return "..", dir.parent
	case cookie == 1:
		return "..", dir
	}
	cookie -= 2
	if dir == s.root && s.checkpoint != nil {
		if cookie == 0 {
			return checkpointName, s.checkpoint
		}
		cookie--
	}
	if cookie >= uint64(len(dir.names)) {
		return "", nil
	}
	name := dir.names[cookie]
	return name, dir.children[name]
}
