package tenant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// chunkTasks and chunkBytes bound a chunk of tasks, which is read ahead and written in one call.
	chunkTasks = 960
	chunkBytes = 4 << 20
	// maxLine is the maximum size of a line in bytes. The rest of a longer line is skipped.
	maxLine = 64 << 20
)

// taskFile is the file of `quern enqueue --file`. A goroutine reads the next chunk of it while a chunk is written.
type taskFile struct {
	queue, id string
	options   queue.Options
	skip      int // number of lines at the beginning to skip
	batch     *batch
	reader    *bufio.Reader
	size      int64 // bytes of a regular file; else 0
}

// chunk holds the tasks of some consecutive lines of the file.
type chunk struct {
	specs   []queue.Spec
	numbers []int   // line numbers of specs
	bad     []error // errors about the lines that are no tasks
	lines   int     // number of lines of the file up to the end of this chunk
	bytes   int64   // number of bytes up to there
	err     error   // why this is the last chunk; io.EOF at the end of the file
}

// fileSummary counts the lines of the file by what became of them. lacking counts enqueued tasks that too few replicas
// have.
type fileSummary struct{ lines, enqueued, existed, refused, lacking int }

// enqueueFile enqueues a task for each line of a file.
func (o *enqueueOptions) enqueueFile(cmd *cobra.Command, client admin.Tenant, name string, json bool) error {
	if err := queue.ValidQueue(name); err != nil {
		return err
	}
	f := &taskFile{queue: name, id: o.task.ID, options: o.task, skip: o.skip}
	input := cmd.InOrStdin()
	if o.file != "-" {
		file, err := os.Open(o.file)
		if err != nil {
			return cli.Usagef("--file: %w: name a file of JSON lines, or - for stdin", err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			return cli.Usagef("--file: %s is a folder: name a file of JSON lines, or - for stdin", o.file)
		}
		if err == nil && info.Mode().IsRegular() {
			f.size = info.Size()
		}
		input = file
	}
	f.reader = bufio.NewReaderSize(input, 1<<18)
	if _, err := client.Clock(cmd.Context()); err != nil {
		return err
	}
	if o.then != "" {
		f.options.When = ""
	}
	if f.id == "" {
		f.id = queue.NewID()
		cli.Note(cmd, "the tasks' IDs are %s-LINE: should this be killed, repeat it with --id %s", f.id, cli.ShellWord(f.id))
	}
	if o.file == "-" && show.IsTerminal(input) {
		cli.Note(cmd, "reading tasks from the terminal; Ctrl-D ends them")
	}

	if o.then != "" {
		f.batch = &batch{client.Queue(o.then), f.id + "-then"}
		if err := f.batch.begin(cmd.Context(), []byte(o.thenInput), o.task.When); err != nil {
			return err
		}
	}
	var done fileSummary
	again := func(err error) error {
		return cli.Refusedf("stopped after line %d: %w: go on with the same command and --id %s --skip %d", done.lines, err,
			f.id, done.lines)
	}
	err := cli.Interruptibly(cmd, func() error { return f.enqueue(cmd, client, &done) },
		func() error { return again(errors.New("interrupted")) })
	if _, told := errors.AsType[*cli.ExitError](err); told {
		return err
	} else if err != nil {
		return again(cli.Explain(err))
	}
	v := show.Object(
		"id", f.id, "tenant", client.Tenant(), "queue", name, "lines", done.lines, "enqueued", done.enqueued,
		"existed", done.existed, "refused", done.refused, "not_replicated", show.Given(done.lacking),
	)
	if f.batch != nil {
		v = append(v, show.Field{"then", "", f.batch.id})
	}
	line := fmt.Sprintf("%s: %d enqueued, %d existed already, %d refused", units.Count(done.lines, "line", "lines"), done.enqueued, done.existed,
		done.refused)
	if err := show.Line(cmd, json, v, line); err != nil {
		return err
	}
	if done.lacking > 0 {
		return cli.Refusedf("%s enqueued, but fewer than %s confirmed: see Redis's `INFO replication`, or ask for fewer with --replicas",
			units.Count(done.lacking, "task is", "tasks are"), units.Count(o.replicas, "replica", "replicas"))
	}
	if done.refused == 0 {
		return nil
	}
	return cli.Usagef("%s refused: correct what is wrong in place, neither adding nor removing lines, and repeat the command with --id %s, which enqueues only what is missing",
		units.Count(done.refused, "line is", "lines are"), f.id)
}

// maxBadLines is the maximum number of refused lines that are reported one by one: in a file of another format, all
// lines are refused.
const maxBadLines = 20

// enqueue enqueues the tasks of the chunks that read sends. done counts the lines of these chunks, also if a later
// chunk fails.
func (f *taskFile) enqueue(cmd *cobra.Command, client admin.Tenant, done *fileSummary) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	chunks := make(chan chunk)
	go f.read(ctx, chunks) // only the program's end can stop a read from a terminal or a pipe
	progress, begun := show.NewProgress(cmd.ErrOrStderr()), time.Now()
	told := 0
	defer func() {
		if progress.Clear(); told > maxBadLines {
			cli.Note(cmd, "%d more lines are refused", told-maxBadLines)
		}
	}()
	for {
		var next chunk
		select {
		case <-ctx.Done():
			return ctx.Err()
		case next = <-chunks:
		}
		refuse := func(bad error) {
			done.refused++
			if told++; told <= maxBadLines {
				progress.Clear()
				fmt.Fprintln(cmd.ErrOrStderr(), show.OneLine(bad.Error()))
			}
		}
		for _, bad := range next.bad {
			refuse(bad)
		}
		receipts, enqueued, err := enqueueFitting(ctx, client.Queue(f.queue), next.specs, connect.OutageTimeout)
		var wanted []queue.Receipt
		for i, receipt := range receipts {
			if !receipt.Taken {
				wanted = append(wanted, receipt)
				continue
			}
			why := errors.New("its ID is taken")
			if told < maxBadLines { // otherwise refuse does not print it
				why = fmt.Errorf("line %d: %s: give it another id", next.numbers[i], existing(ctx, client, receipt, f.queue))
			}
			refuse(why)
		}
		if f.batch != nil && len(receipts) > 0 {
			if err := f.batch.add(ctx, wanted); err != nil {
				return err
			}
		}
		if lacking, ok := errors.AsType[*queue.NotReplicatedError](err); ok {
			done.lacking += len(lacking.IDs)
		} else if err != nil {
			done.lines = next.numbers[len(receipts)] - 1
			return err
		}
		done.lines, done.enqueued, done.existed = next.lines, done.enqueued+enqueued, done.existed+len(wanted)-enqueued
		if next.err != nil {
			if errors.Is(next.err, io.EOF) {
				return f.batch.end(ctx, done.refused)
			}
			return fmt.Errorf("read --file: %w", next.err)
		}
		part := ""
		if f.size > 0 {
			part = fmt.Sprintf(", %d %%", 100*next.bytes/f.size)
		}
		progress.Show("%d lines, %.0f tasks/s%s", done.lines, show.Rate(done.enqueued+done.existed, time.Since(begun)), part)
	}
}

// blockTasks is how many tasks are written together, or refused together.
const blockTasks = 48

// enqueueFitting is enqueueChunk for as many tasks as fit. If the queue or a quota has no room for all of them, it
// enqueues the first ones, in smaller and smaller blocks. There are fewer receipts than specs then, and an error.
func enqueueFitting(ctx context.Context, q admin.QueueHandle, specs []queue.Spec,
	outage time.Duration,
) (receipts []queue.Receipt, enqueued int, err error) {
	var lacking *queue.NotReplicatedError
	// First whole blocks alone: a smaller one might fit although one before it does not.
	size := max(len(specs)-len(specs)%blockTasks, 1)
	for len(receipts) < len(specs) {
		at := len(receipts)
		some, n, err := enqueueChunk(ctx, q, specs[at:min(at+size, len(specs))], outage)
		one, unsafe := errors.AsType[*queue.NotReplicatedError](err)
		switch {
		case err == nil:
		case unsafe:
			if lacking != nil {
				one.IDs = append(lacking.IDs, one.IDs...)
			}
			lacking = one
		case errors.Is(err, queue.ErrQueueFull) && !errors.Is(err, manage.ErrPaused) && min(size, len(specs)-at) > 1:
			size = min(blockTasks, (min(size, len(specs)-at)+1)/2)
			continue
		default:
			return receipts, enqueued, err
		}
		receipts, enqueued = append(receipts, some...), enqueued+n
	}
	if lacking != nil {
		return receipts, enqueued, lacking
	}
	return receipts, enqueued, nil
}

// enqueueChunk enqueues tasks and returns how many of them are new. If Redis is unavailable, it tries again for at most
// the duration outage.
func enqueueChunk(ctx context.Context, q admin.QueueHandle, specs []queue.Spec,
	outage time.Duration,
) (receipts []queue.Receipt, enqueued int, err error) {
	if len(specs) == 0 {
		return nil, 0, nil
	}
	away, err := connect.ThroughOutage(ctx, outage, func() (err error) {
		receipts, err = q.EnqueueMany(ctx, specs)
		return err
	})
	if _, lacking := errors.AsType[*queue.NotReplicatedError](err); err != nil && !lacking {
		return nil, 0, err
	}
	for i, receipt := range receipts {
		// After an outage, an existing task with this ID can come from an earlier try of this call, whose reply was lost.
		if !receipt.Existed || away && receipt.ID == specs[i].ID && !receipt.Taken {
			enqueued++
		}
	}
	return receipts, enqueued, err
}

// batch is the task that waits for all tasks of a file. It is open until the whole file is enqueued.
type batch struct {
	then admin.QueueHandle
	id   string
}

// begin enqueues the open task, unless an earlier run of the command did that.
func (b *batch) begin(ctx context.Context, parameters []byte, when queue.When) error {
	_, err := b.then.EnqueueMany(ctx, []queue.Spec{{
		Parameters: parameters,
		Options:    queue.Options{ID: b.id, When: when, Open: true},
	}})
	return err
}

// end closes the open task. If lines were refused, it leaves the task open, so that their tasks can be added once the
// lines are corrected. It does nothing if b is nil.
func (b *batch) end(ctx context.Context, refused int) error {
	if b == nil || refused > 0 {
		return nil
	}
	_, err := connect.ThroughOutage(ctx, connect.OutageTimeout, func() error { return b.then.Close(ctx, b.id) })
	return err
}

// add makes the open task wait for the tasks of the receipts.
func (b *batch) add(ctx context.Context, receipts []queue.Receipt) error {
	ids := make([]string, len(receipts))
	for i, receipt := range receipts {
		ids[i] = receipt.ID
	}
	_, err := connect.ThroughOutage(ctx, connect.OutageTimeout, func() error { return b.then.Await(ctx, b.id, ids...) })
	return err
}

// read sends the lines of the file in chunks, until the file or ctx ends. Before it waits for more input, it sends the
// lines that it has read.
func (f *taskFile) read(ctx context.Context, chunks chan<- chunk) {
	var next chunk
	size := 0
	for next.err == nil {
		line, long, err := f.line()
		if next.err = err; err != nil && !errors.Is(err, io.EOF) {
			line, long = nil, false // drop an incomplete line
		}
		next.bytes += int64(len(line))
		if len(line) > 0 || long {
			next.lines++
		}
		if spec, err := f.spec(next.lines, line, long); err != nil {
			next.bad = append(next.bad, fmt.Errorf("line %d: %w", next.lines, err))
		} else if spec != nil {
			next.specs, next.numbers, size = append(next.specs, *spec), append(next.numbers, next.lines), size+
				len(spec.Parameters)
		}
		buffered, _ := f.reader.Peek(f.reader.Buffered())
		if next.err == nil && len(next.specs) < chunkTasks && len(next.bad) < chunkTasks && size < chunkBytes &&
			bytes.IndexByte(buffered, '\n') >= 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case chunks <- next:
		}
		next, size = chunk{lines: next.lines, bytes: next.bytes, err: next.err}, 0
	}
}

// line returns the next line with its line end. If the line is longer than maxLine, long is true, and the rest of the
// line is skipped.
func (f *taskFile) line() (line []byte, long bool, err error) {
	for {
		part, err := f.reader.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// spec returns the task of a line; nil for an empty line, and for a line to skip.
func (f *taskFile) spec(number int, line []byte, long bool) (*queue.Spec, error) {
	if number == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // byte order mark of an editor on Windows
	}
	switch line = bytes.TrimSpace(line); {
	case number <= f.skip || len(line) == 0 && !long:
		return nil, nil
	case long:
		return nil, fmt.Errorf("longer than %s: enqueue it alone, with `quern enqueue %s - < PARAMETERS`",
			units.FormatSize(maxLine), cli.ShellWord(f.queue))
	}
	options := f.options
	options.ID = fmt.Sprintf("%s-%d", f.id, number)
	spec, err := admin.ParseTaskLine(line, options)
	if err == nil {
		err = (&listen.Child{Queue: f.queue, Spec: spec}).Validate()
	}
	if err != nil {
		return nil, cli.TrimInvalid(err)
	}
	return &spec, nil
}
