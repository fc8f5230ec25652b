package plugins

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/compile"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == slowCompiler {
		compileSlowly(os.Args[2:])
	}
	goleak.VerifyTestMain(m)
}

// slowCompiler makes the test's program a compile child that never comes to its end with a module above a MiB.
const slowCompiler = "slow-compiler"

func compileSlowly(args []string) {
	if size, err := strconv.Atoi(args[len(args)-1]); err == nil && size > 1<<20 {
		fmt.Println(`{"end":"ready"}`)
		_, _ = io.Copy(io.Discard, os.Stdin)
		never := make(chan os.Signal, 1)
		signal.Notify(never, os.Interrupt)
		<-never
	}
	if err := compile.Child(context.Background(), args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
