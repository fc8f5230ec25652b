package api

import (
	"context"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// PauseOf says how something is paused, and why.
type PauseOf struct {
	Accepting bool   `query:"accepting" doc:"Refuse new tasks; missing: let hosts take no tasks. Python clients do not know pauses."`
	Reason    string `query:"reason" maxLength:"1024" doc:"Why it is paused, for others."`
}

// ResumeOf says which pause ends.
type ResumeOf struct {
	Accepting bool `query:"accepting" doc:"Accept new tasks again; missing: let hosts take tasks again."`
}

func (s *service) describePauses() {
	add(s, looking("/tenants/{tenant}/pauses", "list-pauses",
		"List what is paused, by whom, why and since when: the tenant, queues, keys and plugins"),
		func(ctx context.Context, in *InTenant) (*ListOf[manage.Pause], error) {
			return listed(s.tenants[in.Tenant].Pauses().List(ctx))
		})
	pause := func(ctx context.Context, tenant string, p manage.Pause, how PauseOf) error {
		p.Accepting, p.Reason, p.Who = how.Accepting, how.Reason, principal(ctx).Name
		callerOf(ctx).detail = pauseDetail(p)
		return s.tenants[tenant].Pauses().Pause(ctx, p)
	}
	resume := func(ctx context.Context, tenant string, p manage.Pause, how ResumeOf) error {
		p.Accepting = how.Accepting
		callerOf(ctx).detail = pauseDetail(p)
		return s.tenants[tenant].Pauses().Resume(ctx, p)
	}
	type OfKey struct {
		Key string `query:"key" minLength:"1" maxLength:"1024" doc:"Only the tasks with this key; missing: all of the queue. Not with accepting."`
	}
	type pauseQueue struct {
		InQueue
		PauseOf
		OfKey
	}
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/queues/{queue}/pause", "pause-queue",
		"Stop hosts from taking tasks of a queue, or those with a key, or the queue from accepting new ones; running tasks go on"),
		func(ctx context.Context, in *pauseQueue) (*Of[admin.Queue], error) {
			if err := pause(ctx, in.Tenant, manage.Pause{Queue: in.Queue, Key: in.Key}, in.PauseOf); err != nil {
				return nil, err
			}
			return s.showQueue(ctx, in.InQueue)
		})
	type resumeQueue struct {
		InQueue
		ResumeOf
		OfKey
	}
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/queues/{queue}/resume", "resume-queue", "End a pause of a queue"),
		func(ctx context.Context, in *resumeQueue) (*Of[admin.Queue], error) {
			if err := resume(ctx, in.Tenant, manage.Pause{Queue: in.Queue, Key: in.Key}, in.ResumeOf); err != nil {
				return nil, err
			}
			return s.showQueue(ctx, in.InQueue)
		})
	type pausePlugin struct {
		InPlugin
		Reason string `query:"reason" maxLength:"1024" doc:"Why it is paused, for others."`
	}
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/plugins/{plugin}/pause", "pause-plugin",
		"Stop hosts from taking tasks that the plugin would run, of whatever queue; running tasks go on"),
		func(ctx context.Context, in *pausePlugin) (*struct{}, error) {
			return nil, pause(ctx, in.Tenant, manage.Pause{Plugin: in.Plugin}, PauseOf{Reason: in.Reason})
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/plugins/{plugin}/resume", "resume-plugin", "End the pause of a plugin"),
		func(ctx context.Context, in *InPlugin) (*struct{}, error) {
			return nil, resume(ctx, in.Tenant, manage.Pause{Plugin: in.Plugin}, ResumeOf{})
		})
	type pauseTenant struct {
		InTenant
		PauseOf
	}
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/pause", "pause-tenant",
		"Stop hosts from taking any tasks of the tenant, or it from accepting new ones; only principals that may see all tenants do"),
		func(ctx context.Context, in *pauseTenant) (*struct{}, error) {
			if err := notByItself(ctx, "pause itself"); err != nil {
				return nil, err
			}
			return nil, pause(ctx, in.Tenant, manage.Pause{}, in.PauseOf)
		})
	type resumeTenant struct {
		InTenant
		ResumeOf
	}
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/resume", "resume-tenant",
		"End a pause of the tenant; only principals that may see all tenants do"),
		func(ctx context.Context, in *resumeTenant) (*struct{}, error) {
			if err := notByItself(ctx, "end its own pause"); err != nil {
				return nil, err
			}
			return nil, resume(ctx, in.Tenant, manage.Pause{}, in.ResumeOf)
		})
}

// pauseDetail describes a pause for the audit log.
func pauseDetail(p manage.Pause) string {
	text := "taking"
	if p.Accepting {
		text = "accepting"
	}
	if p.Key != "" {
		text += " key=" + p.Key
	}
	if p.Reason != "" {
		text += " reason=" + p.Reason
	}
	return text
}
