package admin

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/release"
)

// releases are the releases of one plugin.
type releases struct {
	*release.Store
	plugin string
}

// Releases returns the releases of a plugin. The methods return an error if its name is invalid.
func (t *Direct) Releases(plugin string) Releases {
	return releases{release.NewStore(t.Client), plugin}
}

func (r releases) List(ctx context.Context) ([]release.Release, error) {
	return r.Store.Releases(ctx, r.plugin)
}

func (r releases) Serve(ctx context.Context, number int) (release.Release, error) {
	return r.ServeRelease(ctx, r.plugin, number)
}

func (r releases) Promote(ctx context.Context, number int) (release.Release, error) {
	return r.PromoteRelease(ctx, r.plugin, number)
}

func (r releases) Halt(ctx context.Context, number int, reason string) (release.Release, error) {
	return r.HaltRelease(ctx, r.plugin, number, reason)
}

func (r releases) Freeze(ctx context.Context, frozen bool) error {
	return r.FreezeReleases(ctx, r.plugin, frozen)
}

func (r releases) Delete(ctx context.Context, number int) error {
	return r.DeleteRelease(ctx, r.plugin, number)
}
