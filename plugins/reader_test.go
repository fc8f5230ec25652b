package plugins

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// What is read is one state of the file, however often it is overwritten meanwhile.
func TestReadStable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	states := [][]byte{bytes.Repeat([]byte("a"), 200<<10), bytes.Repeat([]byte("b"), 200<<10), bytes.Repeat([]byte("c"), 90<<10)}
	write(t, dir+"/x", states[0])
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := os.WriteFile(dir+"/x", states[i%len(states)], 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	whole, unstable := 0, 0
	for began := time.Now(); time.Since(began) < patience && (whole < 100 || unstable == 0); {
		read, err := readStable(dir, "x", 1<<20, math.MaxInt64, nil)
		switch {
		case errors.Is(err, errUnstable):
			unstable++
		case err != nil:
			t.Fatal(err)
		case len(read.data) == 0: // as it is for a moment, when it is overwritten
		default:
			whole++
			if !bytes.Equal(read.data, bytes.Repeat(read.data[:1], len(read.data))) {
				t.Fatal("a mixture of two states was read")
			}
		}
	}
	cancel()
	writer.Wait()
	if whole < 100 || unstable == 0 {
		t.Errorf("read %d states and none %d times: the test did not try what it should", whole, unstable)
	}
}

func TestReadStableErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/outside", []byte("x"))
	mkdir(t, dir+"/inside")
	symlink(t, "../outside", dir+"/inside/link")
	write(t, dir+"/inside/big", make([]byte, 11))
	for name, want := range map[string]string{
		"link":       "it is a link: put a regular file in its place",
		"big":        "it has 11 bytes, more than 10B: make it smaller",
		"../outside": "path escapes from parent",
		"none":       "no such file or directory",
	} {
		if _, err := readStable(dir+"/inside", name, 10, math.MaxInt64, nil); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/x"
	fingerprintAt := func(modified time.Time) fingerprint {
		write(t, path, []byte("x"))
		check(t, os.Chtimes(path, modified, modified))
		info, err := os.Stat(path)
		check(t, err)
		return fingerprint{info: info} // without the time of the inode, which is always now
	}
	now := time.Now()
	var tr trust
	if tr.covers(fingerprint{}) {
		t.Error("nothing was read, and it covers no file")
	}

	old := fingerprintAt(now.Add(-time.Hour))
	if tr.note(old, now); !tr.settled || !tr.covers(old) {
		t.Errorf("an old file: %+v", tr)
	}
	young := fingerprintAt(now.Add(-time.Second))
	if tr.covers(young) {
		t.Error("another date is covered")
	}
	if tr.note(young, now); tr.settled {
		t.Error("a young file is settled at once")
	}
	if tr.note(young, now.Add(1500*time.Millisecond)); !tr.settled {
		t.Error("a file is not settled when its date is old enough")
	}
	// The clock of a file server may be ahead of ours.
	future := fingerprintAt(now.Add(time.Hour))
	if tr.note(future, now); tr.settled {
		t.Error("a date to come is settled at once")
	}
	if tr.note(future, now.Add(settleTime)); !tr.settled {
		t.Error("a date to come is never settled")
	}
	if tr.note(fingerprint{}, now); !tr.settled || !tr.covers(fingerprint{}) || tr.covers(old) {
		t.Error("a missing file")
	}
}

// A file that has become larger than when it was found is not read: its reader has no memory for it.
func TestReadOfAFileThatGrew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	if read, err := readStable(dir, "x", 100, 10, nil); !errors.Is(err, errUnstable) {
		t.Errorf("%d bytes, %v", len(read.data), err)
	}
	if read, err := readStable(dir, "x", 100, 11, nil); err != nil || len(read.data) != 11 {
		t.Errorf("%d bytes, %v", len(read.data), err)
	}
}
