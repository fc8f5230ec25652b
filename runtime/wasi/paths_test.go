package wasi

import (
	"strings"
	"testing"
)

// TestPaths looks up paths from the root and from a directory below it.
func TestPaths(t *testing.T) {
	t.Parallel()
	const (
		dirtype  = filetypeDirectory
		filetype = filetypeRegularFile
	)
	for path, test := range map[string]struct {
		root, dir errno // what is answered to it from / and from /dir
		filetype  byte  // where it is found
	}{
		".":                              {0, 0, dirtype},
		"./":                             {0, 0, dirtype},
		"./.":                            {0, 0, dirtype},
		"a":                              {0, errnoNoent, filetype},
		"./a":                            {0, errnoNoent, filetype},
		"a/":                             {errnoNotdir, errnoNoent, 0},
		"a/.":                            {errnoNotdir, errnoNoent, 0},
		"a/..":                           {errnoNotdir, errnoNoent, 0},
		"a/b":                            {errnoNotdir, errnoNoent, 0},
		"dir":                            {0, errnoNoent, dirtype},
		"dir/":                           {0, errnoNoent, dirtype},
		"dir//":                          {0, errnoNoent, dirtype},
		"dir/one":                        {0, errnoNoent, filetype},
		"dir//one":                       {0, errnoNoent, filetype},
		"dir/./one":                      {0, errnoNoent, filetype},
		"dir/sub/../one":                 {0, errnoNoent, filetype},
		"dir/../a":                       {0, errnoNoent, filetype},
		"dir/none/../one":                {errnoNoent, errnoNoent, 0},
		"one":                            {errnoNoent, 0, filetype},
		"sub/nil":                        {errnoNoent, 0, filetype},
		"checkpoint":                     {0, errnoNoent, filetype},
		"dir/checkpoint":                 {errnoNoent, errnoNoent, 0},
		"checkpoint/..":                  {errnoNotdir, errnoNoent, 0},
		"ä ö":                            {0, errnoNoent, filetype},
		"..":                             {errnoPerm, errnoPerm, 0},
		"../a":                           {errnoPerm, errnoPerm, 0},
		"../dir/one":                     {errnoPerm, errnoPerm, 0},
		"dir/../../a":                    {errnoPerm, errnoNoent, 0},
		"sub/../../a":                    {errnoNoent, errnoPerm, 0},
		"/":                              {errnoPerm, errnoPerm, 0},
		"/a":                             {errnoPerm, errnoPerm, 0},
		"//":                             {errnoPerm, errnoPerm, 0},
		"":                               {errnoNoent, errnoNoent, 0},
		"a\x00":                          {errnoInval, errnoInval, 0},
		"\x00":                           {errnoInval, errnoInval, 0},
		"\xff":                           {errnoIlseq, errnoIlseq, 0},
		"a/\xc0\x80":                     {errnoIlseq, errnoIlseq, 0},
		"\\a":                            {errnoNoent, errnoNoent, 0},
		"...":                            {errnoNoent, errnoNoent, 0},
		"A":                              {errnoNoent, errnoNoent, 0},
		strings.Repeat("x", 255):         {errnoNoent, errnoNoent, 0},
		strings.Repeat("x", 256):         {errnoNametoolong, errnoNametoolong, 0},
		strings.Repeat("./", 2047) + "a": {0, errnoNoent, filetype},
		strings.Repeat("./", 2048) + "a": {errnoNametoolong, errnoNametoolong, 0},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Files: tree(t), Checkpoint: []byte("state")})
			dir := g.open("dir")
			at, n := g.put(100, path)
			g.put(16, "\xaa")
			g.answers(test.dir, "path_filestat_get", dir, 0, at, n, 0)
			if got := g.get(16, 1)[0]; test.dir == errnoSuccess && got != test.filetype || test.dir != errnoSuccess && got != 0xaa {
				t.Errorf("from /dir it has type %d", got)
			}
			g.put(16, "\xaa")
			g.answers(test.root, "path_filestat_get", 3, 1, at, n, 0)
			if got := g.get(16, 1)[0]; test.root == errnoSuccess && got != test.filetype || test.root != errnoSuccess && got != 0xaa {
				t.Errorf("from / it has type %d", got)
			}
		})
	}
}

func TestPathErrors(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	at, n := g.put(100, "a")
	file := g.open("a")
	g.answers(errnoBadf, "path_filestat_get", 9, 0, at, n, 0)
	g.answers(errnoNotdir, "path_filestat_get", 0, 0, at, n, 0)
	g.answers(errnoNotdir, "path_filestat_get", file, 0, at, n, 0)
	g.answers(errnoInval, "path_filestat_get", 3, 2, at, n, 0)
	g.answers(errnoFault, "path_filestat_get", 3, 0, 65535, 2, 0)
	g.answers(errnoFault, "path_filestat_get", 3, 0, 0xffffffff, 0xffffffff, 0)
	g.answers(errnoFault, "path_filestat_get", 3, 0, at, n, 65536-63)
	g.answers(errnoInval, "path_readlink", 3, at, n, 200, 10, 300)
	g.answers(errnoFault, "path_readlink", 3, at, n, 65530, 10, 300)
	g.answers(errnoFault, "path_readlink", 3, at, n, 200, 10, 65533)
	at, n = g.put(100, "none")
	g.answers(errnoNoent, "path_readlink", 3, at, n, 200, 10, 300)
}

// TestPathOpen opens what exists and what does not, in all the ways that programs ask for.
func TestPathOpen(t *testing.T) {
	t.Parallel()
	const (
		cre, dir, exc, tru = oflagCreat, oflagDirectory, oflagExcl, oflagTrunc
		read, write        = rightFdRead, rightFdWrite
	)
	for name, test := range map[string]struct {
		path           string
		oflags, rights uint64
		want           errno
	}{
		"file":                       {"a", 0, read, 0},
		"no rights":                  {"a", 0, 0, 0},
		"all but writing":            {"a", 0, ^uint64(rightsToWrite), 0},
		"all rights":                 {"a", 0, ^uint64(0), errnoRofs},
		"write":                      {"a", 0, write, errnoRofs},
		"write, as wasi-libc asks":   {"a", 0, rightFdAllocate, errnoRofs},
		"read and write":             {"a", 0, read | write, errnoRofs},
		"truncate":                   {"a", tru, read, errnoRofs},
		"create what is there":       {"a", cre, read, 0},
		"create what is there anew":  {"a", cre | exc, read, errnoExist},
		"exclusive without creation": {"a", exc, read, 0},
		"write what is there":        {"a", cre | tru, write, errnoRofs},
		"directory":                  {"dir", dir, read, 0},
		"directory without saying":   {"dir", 0, read, 0},
		"directory for writing":      {"dir", 0, write, errnoIsdir},
		"directory, all rights":      {"dir", dir, ^uint64(0), 0},
		"truncate directory":         {"dir", tru, read, errnoIsdir},
		"create directory":           {"dir", cre, read, errnoIsdir},
		"create directory anew":      {"dir", cre | exc, read, errnoExist},
		"create as directory":        {"new", cre | dir, read, errnoInval},
		"file as directory":          {"a", dir, read, errnoNotdir},
		"new":                        {"new", cre, write, errnoRofs},
		"new anew":                   {"dir/new", cre | exc | tru, write, errnoRofs},
		"new with slash":             {"new/", cre, write, errnoRofs},
		"nothing":                    {"new", 0, read, errnoNoent},
		"nothing, for writing":       {"new", 0, write, errnoNoent},
		"new in nothing":             {"new/new", cre, write, errnoNoent},
		"new below file":             {"a/new", cre, write, errnoNotdir},
		"outside":                    {"../new", cre, write, errnoPerm},
		"flags":                      {"a", 16, read, errnoInval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Files: tree(t)})
			at, n := g.put(100, test.path)
			g.u32(0, 99)
			g.answers(test.want, "path_open", 3, 1, at, n, test.oflags, test.rights, ^uint64(0), 0, 0)
			want := uint32(99)
			if test.want == errnoSuccess {
				want = 4
			}
			if got := g.get32(0); got != want {
				t.Errorf("descriptor %d, want %d", got, want)
			}
			if test.want != errnoSuccess {
				g.answers(errnoBadf, "fd_close", 4)
			}
		})
	}
}

func TestPathOpenErrors(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	at, n := g.put(100, "a")
	g.answers(errnoBadf, "path_open", 4, 0, at, n, 0, 0, 0, 0, 0)
	g.answers(errnoNotdir, "path_open", 1, 0, at, n, 0, 0, 0, 0, 0)
	g.answers(errnoInval, "path_open", 3, 2, at, n, 0, 0, 0, 0, 0)
	g.answers(errnoInval, "path_open", 3, 0, at, n, 0, 0, 0, 32, 0)
	g.answers(errnoFault, "path_open", 3, 0, at, n, 0, 0, 0, 0, 65533)
	g.answers(errnoFault, "path_open", 3, 0, 65536, n, 0, 0, 0, 0, 0)
	g.answers(errnoBadf, "fd_close", 4) // nothing was opened meanwhile
}
