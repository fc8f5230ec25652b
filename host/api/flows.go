package api

import (
	"context"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Await asks that an open task wait for more tasks.
type Await struct {
	InTask
	Body struct {
		After []string `json:"after,omitempty" maxItems:"10000" doc:"IDs of tasks. Those that it waits for already are not added again."`
		Close bool     `json:"close,omitempty" doc:"There are no more: it runs when these have ended as its when says."`
	}
}

// CancelFlow asks to cancel the flow of a task.
type CancelFlow struct {
	InTask
	Whole bool `query:"whole" doc:"Also what it waits for, what waits for that, and so on; otherwise only what waits for it, directly or not."`
}

// FlowCancelled reports what became of the tasks of a flow.
type FlowCancelled struct {
	Body struct {
		Cancelled int      `json:"cancelled" doc:"They waited, and have failed."`
		Running   []string `json:"running" doc:"Their hosts stop them now."`
		Finished  int      `json:"finished" doc:"They had ended."`
		Python    []string `json:"python,omitempty" doc:"They run on Python listeners, which cannot stop them."`
	}
}

func (s *service) describeFlows() {
	type dependencies struct {
		InTask
		Offset int `query:"offset" minimum:"0" maximum:"10000"`
		Limit  int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	add(s, looking("/tenants/{tenant}/tasks/{id}/dependencies", "list-dependencies",
		"List the tasks that a task waits for, or waited for, in the order in which they were named"),
		func(ctx context.Context, in *dependencies) (*ListOf[listen.Dependency], error) {
			found, err := s.tenants[in.Tenant].Dependencies(ctx, in.ID, in.Offset, in.Limit)
			return listed(append([]listen.Dependency{}, found...), err)
		})
	type tree struct {
		InTask
		Depth int `query:"depth" minimum:"1" maximum:"100" default:"8" doc:"Levels below the task."`
		Width int `query:"width" minimum:"1" maximum:"1000" default:"100" doc:"Tasks below each task."`
		Total int `query:"total" minimum:"1" maximum:"10000" default:"1000" doc:"Tasks in all, level by level; fewer if their texts have more than 8 MiB."`
	}
	add(s, looking("/tenants/{tenant}/tasks/{id}/tree", "show-tree",
		"Show a task with the tasks that it enqueued and those that wait for it, theirs, and so on"),
		func(ctx context.Context, in *tree) (*Of[*admin.TreeNode], error) {
			if err := s.reserve(ctx, treeCost); err != nil {
				return nil, err
			}
			root, err := s.tenants[in.Tenant].Tree(ctx, in.ID,
				manage.TreeOptions{Depth: in.Depth, Width: in.Width, Total: in.Total})
			return &Of[*admin.TreeNode]{root}, err
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/tasks/{id}/await", "await-tasks",
		"Add tasks to those that an open task waits for, and close it; may be repeated"),
		func(ctx context.Context, in *Await) (*Of[admin.Task], error) {
			t := s.tenants[in.Tenant]
			task, err := t.Client.Summary(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			q := t.Queue(task.Queue)
			if err = q.Await(ctx, in.ID, in.Body.After...); err == nil && in.Body.Close {
				err = q.Close(ctx, in.ID)
			}
			if err != nil {
				return nil, err
			}
			return s.showTask(ctx, &ShowTask{InTask: in.InTask})
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/tasks/{id}/cancel-flow", "cancel-flow",
		"Cancel a task and all that wait for it; may be repeated"),
		func(ctx context.Context, in *CancelFlow) (*FlowCancelled, error) {
			place, err := s.searches.enter(ctx)
			if err != nil {
				return nil, err
			}
			defer place.Give()
			done, err := s.tenants[in.Tenant].CancelFlow(ctx, in.ID, in.Whole)
			out := &FlowCancelled{}
			out.Body.Cancelled, out.Body.Running, out.Body.Finished, out.Body.Python = done.Cancelled, append([]string{},
				done.Running...), done.Finished, done.Python
			return out, err
		})
}
