// Package manage is for operators of a tenant: it lists and finds tasks, counts queues, and changes many tasks in jobs.
// Package host/admin is built on it. Package host/api/client does the same through the API of a host.
//
//	manager := manage.New(client)
//	tasks, err := manager.Queue("thumbnails").List(ctx, manage.ListOptions{Status: queue.Failed})
//	tree, err := manager.Tree(ctx, id, manage.TreeOptions{})
package manage
