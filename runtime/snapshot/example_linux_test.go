package snapshot_test

import (
	"fmt"

	"github.com/quern-project/quern/runtime/snapshot"
)

func Example() {
	if err := forget(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// "ready for a task" "\x00\x00\x00\x00\x00\x00\x00"
}

func forget() error {
	mode := snapshot.New
	for _, verdict := range snapshot.Probe() {
		if verdict.Err == nil {
			mode = verdict.Mode // the best one comes first
			break
		}
	}
	const page = 64 << 10
	contents := make([]byte, page)
	copy(contents, "ready for a task")
	image, err := snapshot.Take(contents, nil)
	if err != nil {
		return err
	}
	defer func() { _ = image.Close() }()
	space, err := snapshot.Reserve(4 << 30)
	if err != nil {
		return err
	}
	defer func() { _ = space.Release() }()
	if err := space.Map(image); err != nil {
		return err
	}

	memory := space.Bytes()
	copy(memory, "a task's secrets")
	copy(memory[page:], "and its growth")
	if err := space.Reset(mode, 2*page); err != nil {
		return err
	}
	fmt.Printf("%q %q\n", memory[:16], memory[page:][:7])
	return nil
}
