package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
)

// outcome is the thumbnail or the error of one task.
type outcome struct {
	photo     int // index of the photograph
	thumbnail []byte
	err       error
}

// process enqueues every photograph several times, waits for all tasks and returns the thumbnail of
// each photograph. It calls step once for each complete task.
func process(ctx context.Context, client *queue.Client, photos []photo, repeat int, step func()) ([][]byte, error) {
	tasks := make([]queue.Spec, 0, len(photos)*repeat)
	for range repeat {
		for _, p := range photos {
			tasks = append(tasks, queue.Spec{Parameters: p.data})
		}
	}
	receipts, err := client.Queue(queueName).EnqueueMany(ctx, tasks)
	if err != nil {
		return nil, err
	}

	outcomes := make(chan outcome, len(receipts)) // room for all, so that no waiter blocks
	for i, receipt := range receipts {
		go func() {
			thumbnail, err := wait(ctx, client, receipt.ID)
			outcomes <- outcome{photo: i % len(photos), thumbnail: thumbnail, err: err}
		}()
	}

	// Wait for all tasks, also after a failure: the waiters use the client, which the caller closes.
	thumbnails := make([][]byte, len(photos))
	var failure error
	for range receipts {
		done := <-outcomes
		known := thumbnails[done.photo]
		if done.err == nil && known != nil && !bytes.Equal(known, done.thumbnail) {
			done.err = errors.New("two tasks made different thumbnails of it")
		}
		if done.err != nil {
			failure = cmp.Or(failure, fmt.Errorf("photograph %q: %w", photos[done.photo].name, done.err))
			continue
		}
		thumbnails[done.photo] = done.thumbnail
		step()
	}
	return thumbnails, failure
}

// wait waits for one task and returns its result.
func wait(ctx context.Context, client *queue.Client, id string) ([]byte, error) {
	task, err := client.Wait(ctx, id)
	if err != nil {
		return nil, err
	}
	if task.Status != queue.Complete {
		failure := task.Failure()
		return nil, fmt.Errorf("task %s failed (%s): %s", id, failure.Reason, failure.Message)
	}
	return task.Result, nil
}
