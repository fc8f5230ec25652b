package tenant

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A Redis that stays away ends the command.
func TestEnqueueFileWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	client, err := queue.New(proxy.URL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	proxy.Refuse()
	specs := []queue.Spec{{Options: queue.Options{ID: "x-1"}}}
	if _, n, err := enqueueChunk(t.Context(), client.Queue("mail"), specs, 3*connect.OutagePause); n != 0 || !queue.IsUnavailable(err) {
		t.Errorf("%d enqueued, %v", n, err)
	}
	proxy.Pass()
	if _, n, err := enqueueChunk(t.Context(), client.Queue("mail"), specs, 3*connect.OutagePause); n != 1 || err != nil {
		t.Errorf("%d enqueued, %v", n, err)
	}
}

// A file that can be read in part only ends before the line that is not whole.
func TestEnqueueFileThatEndsWithAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	input := io.MultiReader(strings.NewReader(`{"parameters": 1}`+"\n"+`{"parameters": 2}`+"\n"+`{"parameters": 3}`), iotest.ErrReader(broken))
	f := &taskFile{queue: "mail", id: "x", reader: bufio.NewReader(input)}
	chunks := make(chan chunk, 3)
	f.read(t.Context(), chunks)
	close(chunks)
	tasks, last := 0, chunk{}
	for last = range chunks {
		tasks += len(last.specs)
	}
	if tasks != 2 || last.lines != 2 || len(last.bad) != 0 || !errors.Is(last.err, broken) {
		t.Errorf("%d tasks, and last %+v", tasks, last)
	}
}
