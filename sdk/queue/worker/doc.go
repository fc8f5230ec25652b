// Package worker is for workers in plain Go, without a host and without plugins. Run does all of the work. Programs
// that want their own loop use its parts, a Listener and a Processor.
//
//	err := worker.Run(ctx, client, "thumbnails", func(ctx context.Context, task *queue.Task) ([]byte, error) {
//		return resize(ctx, task.Parameters)
//	})
package worker
