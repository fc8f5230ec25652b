package wasi

import "testing"

// TestChanges: what would change the tree is refused, first for what is wrong with the arguments.
func TestChanges(t *testing.T) {
	t.Parallel()
	// Paths that the arguments of the table stand for.
	paths := []string{"a", "dir", "dir/none", "none/none", "a/none", "../none", "dir/one", ""}
	const file, dir, free, lost, below, out, other, empty = 0, 1, 2, 3, 4, 5, 6, 7
	for name, test := range map[string]struct {
		arguments []any // a string is a path: pointer and length
		cases     map[errno][][2]int
	}{
		"path_create_directory": {cases: map[errno][][2]int{
			errnoRofs: {{free}}, errnoExist: {{file}, {dir}}, errnoNoent: {{lost}, {empty}}, errnoNotdir: {{below}}, errnoPerm: {{out}},
		}},
		"path_remove_directory": {cases: map[errno][][2]int{
			errnoRofs: {{dir}}, errnoNotdir: {{file}, {below}}, errnoNoent: {{lost}, {free}}, errnoPerm: {{out}},
		}},
		"path_unlink_file": {cases: map[errno][][2]int{
			errnoRofs: {{file}, {other}}, errnoIsdir: {{dir}}, errnoNoent: {{lost}, {free}}, errnoPerm: {{out}},
		}},
		"path_rename": {cases: map[errno][][2]int{
			errnoRofs: {{file, free}, {file, other}, {dir, free}}, errnoNoent: {{free, file}, {file, lost}, {file, empty}},
			errnoPerm: {{out, file}, {file, out}}, errnoNotdir: {{file, below}},
		}},
		"path_symlink": {cases: map[errno][][2]int{
			errnoRofs: {{out, free}, {lost, free}}, errnoExist: {{free, file}}, errnoNoent: {{file, lost}}, errnoPerm: {{file, out}},
		}},
		"path_link": {cases: map[errno][][2]int{
			errnoRofs: {{file, free}}, errnoExist: {{file, other}}, errnoNoent: {{free, free}, {file, lost}}, errnoPerm: {{dir, free}, {file, out}},
		}},
		"path_filestat_set_times": {cases: map[errno][][2]int{
			errnoRofs: {{file}, {dir}}, errnoNoent: {{free}, {lost}}, errnoNotdir: {{below}}, errnoPerm: {{out}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, 1, Config{Files: tree(t)})
			for want, cases := range test.cases {
				for _, c := range cases {
					one, oneLength := g.put(100, paths[c[0]])
					two, twoLength := g.put(200, paths[c[1]])
					arguments := func(fd, one uint64) []uint64 {
						switch name {
						case "path_rename":
							return []uint64{fd, one, oneLength, fd, two, twoLength}
						case "path_symlink":
							return []uint64{one, oneLength, fd, two, twoLength}
						case "path_link":
							return []uint64{fd, 0, one, oneLength, fd, two, twoLength}
						case "path_filestat_set_times":
							return []uint64{fd, 1, one, oneLength, 0, 0, fstflagAtimNow | fstflagMtim}
						}
						return []uint64{fd, one, oneLength}
					}
					g.answers(want, name, arguments(3, one)...)
					g.answers(errnoBadf, name, arguments(9, one)...)
					g.answers(errnoNotdir, name, arguments(1, one)...)
					if oneLength > 0 {
						g.answers(errnoFault, name, arguments(3, 65536)...)
					}
				}
			}
		})
	}
}

func TestChangeFlags(t *testing.T) {
	t.Parallel()
	g := setup(t, 1, Config{Files: tree(t)})
	at, n := g.put(100, "a")
	to, m := g.put(200, "b")
	file := g.open("a")
	g.answers(errnoInval, "path_link", 3, 2, at, n, 3, to, m)
	g.answers(errnoInval, "path_filestat_set_times", 3, 2, at, n, 0, 0, 0)
	for flags, want := range map[uint64]errno{
		0: errnoRofs, fstflagAtim: errnoRofs, fstflagAtimNow | fstflagMtimNow: errnoRofs,
		fstflagAtim | fstflagAtimNow: errnoInval, fstflagMtim | fstflagMtimNow: errnoInval, 16: errnoInval,
	} {
		g.answers(want, "path_filestat_set_times", 3, 0, at, n, 0, 0, flags)
		g.answers(want, "fd_filestat_set_times", file, 0, 0, flags)
		g.answers(want, "fd_filestat_set_times", 3, 0, 0, flags)
	}
	g.answers(errnoNotsup, "fd_filestat_set_times", 1, 0, 0, 0)
	g.answers(errnoBadf, "fd_filestat_set_times", 9, 0, 0, 0)
	for fd, want := range map[uint64][3]errno{ // fd_allocate, fd_filestat_set_size, both with bad numbers
		file: {errnoRofs, errnoRofs, errnoInval},
		1:    {errnoSpipe, errnoInval, 0},
		3:    {errnoBadf, errnoBadf, errnoBadf},
		9:    {errnoBadf, errnoBadf, errnoBadf},
	} {
		g.answers(want[0], "fd_allocate", fd, 0, 100)
		g.answers(want[1], "fd_filestat_set_size", fd, 0)
		if want[2] != errnoSuccess {
			g.answers(want[2], "fd_allocate", fd, 0, 0)
			g.answers(want[2], "fd_allocate", fd, 1<<63, 1)
			g.answers(want[2], "fd_filestat_set_size", fd, 1<<63)
		}
	}
	g.answers(errnoFbig, "fd_allocate", file, 1<<62, 1<<62)
}
