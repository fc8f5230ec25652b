package pluginfile

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

// Check checks the plugin as a host does when it loads one: faults become refusals.
func (p *File) Check(ctx context.Context, env cli.Environment, config runtime.Config) (info runtime.Info, err error) {
	base := filepath.Base(p.Path)
	switch {
	case !strings.HasSuffix(base, manifest.ModuleSuffix):
		p.refuse("a host ignores files that do not end in "+manifest.ModuleSuffix, p.Path, "rename it to NAME"+manifest.ModuleSuffix)
	case strings.HasPrefix(base, "."):
		p.refuse("a host ignores files that begin with a dot", p.Path, "rename it")
	case queue.ValidQueue(p.Name) != nil:
		p.refuse("the file's name is no name of a queue", p.Path, "rename it, with 1 to 128 printable ASCII characters without spaces")
	}
	if p.binary == nil {
		return info, nil
	}
	config.Logger = hclog.NewNullLogger()
	engine, _, err := sandbox.NewEngine(ctx, env, config)
	if err != nil {
		return info, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := p.Load(ctx, engine)
	if err == nil {
		return module.Info(), module.Close(ctx)
	}
	refused, ok := errors.AsType[*runtime.RefusedError](err)
	if !ok {
		return info, err
	}
	p.Refusals = append(p.Refusals, refused.Refusals...)
	info, _ = engine.Inspect(ctx, p.binary) // of the readable part
	return info, nil
}
