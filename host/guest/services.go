// Package guest provides what a handler can ask of its host: a key-value store, HTTP, secrets, new tasks and
// checkpoints, as far as its manifest and the host's grants allow. It implements the interfaces of runtime/service. It
// knows neither queues nor schedulers: the interface Host has all that it needs of the host that runs the task.
//
//	guest ──quern_v1──▶ runtime/abi ──▶ service.Services = Services.For(Task) ─┬─▶ host/kv, runtime/egress
//	                                     │ not granted: service.ErrDenied      ├─▶ the secrets of the grants, or their folder
//	                                                                           ├─▶ host/sql: databases
//	                                                                           └─▶ Host: checkpoints, tasks and results
package guest

import (
	"cmp"
	"slices"
	"sync"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
)

// Config has the parts outside of this process that the services use. Calls of a store or client that is left out are
// denied.
type Config struct {
	// KV maps the name of each tenant to the tenant's store.
	KV map[string]*kv.Store
	// HTTP sends the requests of handlers.
	HTTP *egress.Client
	// Secrets is the path of a folder. Its file TENANT/NAME holds a secret that the host's grants do not define. A secret
	// is read each time that a task asks for it.
	Secrets string
	// Databases has the connections to the databases of handlers.
	Databases *sql.Databases
	// DatabaseURLs are the URLs of databases by name. If it is nil, they are in secrets.
	DatabaseURLs map[string]string
	// DatabaseScripts run first in the transactions of databases that undo them, by name.
	DatabaseScripts map[string]string
}

// Services makes the services of tasks. Its methods are safe for concurrent use.
type Services struct {
	config  Config
	missing sync.Map // the secrets that could not be read, by tenant and name
}

// New makes Services. The caller still owns the stores and the client.
func New(config Config) *Services { return &Services{config: config} }

// For makes the services of one run of a task. The calls of a service that is not granted are denied; the error names
// the line to add. The caller ends run, which is nil if the manifest asks for no database.
func (s *Services) For(t Task) (services service.Services, children *Children, run *sql.Run) {
	services = service.Services{
		Checkpoint: &checkpoint{host: t.Host}, Dependencies: &dependencies{host: t.Host},
		Config: t.Permissions.Config,
	}
	services.Vars = slices.ContainsFunc(t.Asked.KV, func(g manifest.KVGrant) bool {
		return g.Bucket == service.VarsBucket
	})
	if store := s.config.KV[t.Tenant]; store != nil {
		grants := make([]kv.Grant, len(t.Permissions.Capabilities.KV))
		for i, g := range t.Permissions.Capabilities.KV {
			grants[i] = kv.Grant(g)
		}
		services.KV = store.For(grants, t.Permissions.DenyBucket)
	}
	if s.config.HTTP != nil {
		var ceiling *egress.Ceiling
		if c := t.Permissions.Ceiling; c != nil {
			ceiling = &egress.Ceiling{Grants: c.HTTP, Where: t.Permissions.Where}
		}
		services.HTTP = s.config.HTTP.For(t.Tenant, t.Asked.HTTP, ceiling)
	}
	services.Secrets = &secrets{&t, s}
	services.SQL = noDatabases{t.Permissions}
	if run = s.databases(&t); run != nil {
		services.SQL = run
	}
	grant := cmp.Or(t.Permissions.Capabilities.Enqueue, &noQueues)
	children = &Children{task: &t, grant: grant, tasks: grant.Tasks, bytes: grant.Bytes}
	services.Enqueue, services.EnqueueAtOnce = children, grant.AfterCall()
	services.Publish, services.PublishAtOnce = children, t.Permissions.Capabilities.Publish.AfterCall()
	return services, children, run
}

// noQueues is the grant of a task that is not allowed to enqueue.
var noQueues manifest.EnqueueGrant
