package wasi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// process is a Host that sleeps and exits.
type process struct{ recorder }

func (p *process) Wait(d time.Duration) {
	p.recorder.Wait(d)
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
	}
}

func (p *process) Exit(code uint32) { panic(sys.NewExitError(code)) }

// execute runs a command with the functions of this package and returns what was written.
func execute(t *testing.T, binary []byte, c Config) *process {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer rt.Close(ctx)
	host := &process{}
	c.Host = host
	s := newSystem(c)
	builder := rt.NewHostModuleBuilder(ModuleName)
	for _, f := range Functions() {
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			f.Call(s, m.Memory(), stack)
		}), f.Params, f.Results).Export(f.Name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	_, err := rt.Instantiate(ctx, binary)
	var exit *sys.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 0) {
		t.Fatalf("%v\n%s%s", err, &host.stdout, &host.stderr)
	}
	return host
}

// TestC: the C library finds its way.
func TestC(t *testing.T) {
	t.Parallel()
	host := execute(t, runtimetest.BuildC(t, `
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void result(const char *what, int ok) { printf("%s: %s\n", what, ok ? "OK" : strerror(errno)); errno = 0; }
static void list(const char *path) {
	DIR *d = opendir(path);
	if (!d) { result(path, 0); return; }
	printf("%s:", path);
	for (struct dirent *e; (e = readdir(d));) printf(" %s/%d", e->d_name, e->d_type);
	rewinddir(d);
	printf(" again %s\n", readdir(d)->d_name);
	closedir(d);
}
int main(int argc, char **argv) {
	char b[100], *s;
	struct stat st;
	for (int i = 0; i < argc; i++) printf("arg %s\n", argv[i]);
	printf("env %s\n", getenv("KEY"));
	printf("input %s", fgets(b, sizeof b, stdin));
	printf("terminal %d %d %d\n", isatty(0), isatty(1), isatty(2));
	fprintf(stderr, "line %d\n", 1);
	list("/"); list("/dir"); list("dir/sub"); list("/none"); list("/a");
	printf("cwd %s\n", getcwd(b, sizeof b));
	FILE *f = fopen("/dir/one", "r");
	printf("read %s", fgets(b, 4, f));
	printf(" seek %d", fseek(f, -3, SEEK_END));
	printf(" tell %ld", ftell(f));
	printf(" rest %s", fgets(b, sizeof b, f));
	printf(" end %d\n", fgetc(f) == EOF && feof(f));
	fclose(f);
	printf("stat %d size %d regular %d\n", stat("dir/../a", &st), (int)st.st_size, S_ISREG(st.st_mode));
	printf("stat %d directory %d\n", stat("/dir/", &st), S_ISDIR(st.st_mode));
	result("access", access("/a", F_OK) == 0);
	result("access reading", access("/a", R_OK) == 0);
	result("access writing", access("/a", W_OK) == 0);
	result("access none", access("/none", F_OK) == 0);
	result("open to read", open("/a", O_RDONLY) >= 0);
	result("open to write", open("/a", O_WRONLY) >= 0);
	result("open both", open("/a", O_RDWR) >= 0);
	result("append", fopen("/a", "a") != 0);
	result("update", fopen("/a", "r+") != 0);
	result("overwrite", fopen("/a", "w") != 0);
	result("create", fopen("/new", "w") != 0);
	result("create anew", open("/a", O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0);
	result("open directory", open("/dir", O_RDONLY | O_DIRECTORY) >= 0);
	result("mkdir", mkdir("/d", 0700) == 0);
	result("unlink", unlink("/a") == 0);
	result("rmdir", rmdir("/dir") == 0);
	result("rename", rename("/a", "/b") == 0);
	result("truncate", truncate("/a", 0) == 0);
	result("symlink", symlink("/a", "/b") == 0);
	result("readlink", readlink("/a", b, sizeof b) >= 0);
	result("outside", open("/../a", O_RDONLY) >= 0);
	result("chdir", chdir("/dir") == 0);
	result("relative", open("two", O_RDONLY) >= 0);
	f = fopen("/checkpoint", "r");
	printf("checkpoint %s\n", fgets(b, sizeof b, f));
}`), Config{
		Args: []string{"program", "one"}, Env: []string{"KEY=value"}, Stdin: []byte("in\n"), Files: tree(t), Checkpoint: []byte("state"),
	})
	compare(t, host.stdout.String(), `arg program
arg one
env value
input in
terminal 0 0 0
/: ./3 ../3 checkpoint/4 a/4 dir/3 ä ö/4 again .
/dir: ./3 ../3 one/4 sub/3 two/4 again .
dir/sub: ./3 ../3 nil/4 again .
/none: No such file or directory
/a: Not a directory
cwd /
read 012 seek 0 tell 7 rest 789 end 1
stat 0 size 5 regular 1
stat 0 directory 1
access: OK
access reading: OK
access writing: Permission denied
access none: No such file or directory
open to read: OK
open to write: Read-only file system
open both: Read-only file system
append: Read-only file system
update: Read-only file system
overwrite: Read-only file system
create: Read-only file system
create anew: File exists
open directory: OK
mkdir: Read-only file system
unlink: Read-only file system
rmdir: Read-only file system
rename: Read-only file system
truncate: Read-only file system
symlink: Read-only file system
readlink: Invalid argument
outside: Operation not permitted
chdir: OK
relative: OK
checkpoint state
`)
	if got := host.stderr.String(); got != "line 1\n" {
		t.Errorf("stderr %q", got)
	}
}

// TestBuffering: C writes its output by the buffer, as to a pipe, and its errors at once.
func TestBuffering(t *testing.T) {
	t.Parallel()
	const lines = 100
	for stream, most := range map[string]int{"stdout": 5, "stderr": lines} {
		host := execute(t, runtimetest.BuildC(t, `
#include <stdio.h>
int main(void) { for (int i = 0; i < 100; i++) fprintf(STREAM, "line\n"); }`, "-DSTREAM="+stream), Config{})
		if got := host.writes; got > most || stream == "stderr" && got != lines {
			t.Errorf("%d writes to %s, want %d", got, stream, most)
		}
	}
}

// TestGo: so does Go's.
func TestGo(t *testing.T) {
	t.Parallel()
	host := execute(t, runtimetest.BuildGo(t, `package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

func main() {
	fmt.Println(os.Args, strings.Join(os.Environ(), " "))
	input, err := io.ReadAll(os.Stdin)
	fmt.Printf("%q %v\n", input, err)
	stat, err := os.Stdin.Stat()
	fmt.Println("terminal", stat.Mode()&os.ModeCharDevice != 0, err)
	contents, err := os.ReadFile("/dir/one")
	fmt.Printf("%q %v\n", contents, err)
	entries, err := os.ReadDir("/dir")
	for _, entry := range entries {
		fmt.Print(entry, " ")
	}
	fmt.Println(err)
	err = fs.WalkDir(os.DirFS("/"), ".", func(path string, d fs.DirEntry, err error) error {
		fmt.Print(path, " ")
		return err
	})
	fmt.Println(err)
	stat, err = os.Stat("/dir/two")
	fmt.Println(stat.Name(), stat.Size(), stat.Mode(), stat.ModTime().Unix(), err)
	one, err := os.Stat("/dir/one")
	fmt.Println("same", os.SameFile(stat, one), os.SameFile(stat, stat), err)
	file, err := os.Open("/dir/one")
	at, seekErr := file.Seek(-2, io.SeekEnd)
	rest, readErr := io.ReadAll(file)
	fmt.Println(at, string(rest), err, seekErr, readErr, file.Close())
	_, err = os.ReadFile("/dir")
	fmt.Println(err)
	_, err = os.Stat("/none")
	fmt.Println(err, errors.Is(err, fs.ErrNotExist))
	_, err = os.Create("/new")
	fmt.Println(err, errors.Is(err, syscall.EROFS))
	_, err = os.OpenFile("/a", os.O_RDWR, 0)
	fmt.Println(err)
	fmt.Println(os.WriteFile("/a", nil, 0o600))
	fmt.Println(os.Mkdir("/d", 0o700))
	fmt.Println(os.MkdirAll("/dir/sub", 0o700))
	fmt.Println(os.Remove("/a"))
	fmt.Println(os.RemoveAll("/none"))
	fmt.Println(os.Rename("/a", "/b"))
	checkpoint, err := os.ReadFile("/checkpoint")
	fmt.Println(string(checkpoint), err)
	before := time.Now()
	time.Sleep(5 * time.Millisecond)
	fmt.Println("slept", time.Since(before) >= 5*time.Millisecond)
	one16, two16 := make([]byte, 16), make([]byte, 16)
	rand.Read(one16)
	rand.Read(two16)
	fmt.Println("random", !bytes.Equal(one16, two16))
	fmt.Fprintln(os.Stderr, "line")
}`), Config{
		Args: []string{"program", "one"}, Env: []string{"KEY=value", "PWD=/dir"}, Stdin: []byte("in"), Files: tree(t),
		Checkpoint: []byte("state"), Started: time.Now(),
	})
	compare(t, host.stdout.String(), `[program one] KEY=value PWD=/dir
"in" <nil>
terminal false <nil>
"0123456789" <nil>
- one d sub/ - two <nil>
. a checkpoint dir dir/one dir/sub dir/sub/nil dir/two ä ö <nil>
two 1 -rw------- 0 <nil>
same false true <nil>
8 89 <nil> <nil> <nil> <nil>
read /dir: Is a directory
stat /none: No such file or directory true
open /new: Read-only file system true
open /a: Read-only file system
open /a: Read-only file system
mkdir /d: Read-only file system
<nil>
remove /a: Read-only file system
<nil>
rename /a /b: Read-only file system
state <nil>
slept true
random true
`)
	if got := host.stderr.String(); got != "line\n" {
		t.Errorf("stderr %q", got)
	}
}

// compare shows the lines that differ.
func compare(t *testing.T, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			t.Errorf("line %d is %q, want %q", i+1, g, w)
		}
	}
}
