package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue/release"
)

// releases are the releases of one plugin.
type releases struct {
	client *Client
	plugin string
}

// Releases returns the releases of a plugin. The methods return an error if its name is invalid.
func (c *Client) Releases(plugin string) admin.Releases { return releases{c, plugin} }

// do makes a call below the path of the plugin.
func (r releases) do(ctx context.Context, what call) error {
	if err := release.ValidPlugin(r.plugin); err != nil {
		return err
	}
	what.path = append([]string{"plugins", r.plugin}, what.path...)
	return r.client.do(ctx, what)
}

func (r releases) MissingPieces(ctx context.Context, sizes map[string]int64) ([]string, error) {
	var answer api.MissingPieces
	what := post(&answer, "pieces")
	what.body = map[string]any{"sizes": sizes}
	err := r.client.do(ctx, what)
	return answer.Missing, err
}

func (r releases) Piece(ctx context.Context, digest string) (data []byte, err error) {
	err = r.client.do(ctx, get(&data, "pieces", digest))
	return data, err
}

func (r releases) PutPiece(ctx context.Context, digest string, data []byte) error {
	return r.client.do(ctx, call{method: http.MethodPut, path: []string{"pieces", digest}, body: data})
}

func (r releases) PushRelease(ctx context.Context, one release.Release, share *release.Share,
) (pushed release.Release, err error) {
	what := post(&pushed, "releases")
	body := map[string]any{"version": one.Version, "files": one.Files, "note": one.Note}
	if len(one.Signatures) > 0 {
		body["signatures"] = one.Signatures
	}
	if one.Artifact != "" {
		body["artifact"] = one.Artifact
	}
	if len(one.Queues) > 0 {
		body["queues"] = one.Queues
	}
	if share != nil {
		body["share"] = share
	}
	what.body = body
	err = r.do(ctx, what)
	return pushed, err
}

func (r releases) List(ctx context.Context) ([]release.Release, error) {
	var page api.List[release.Release]
	err := r.do(ctx, get(&page, "releases"))
	return page.Items, err
}

func (r releases) Serve(ctx context.Context, number int) (served release.Release, err error) {
	err = r.do(ctx, post(&served, "releases", strconv.Itoa(number), "serve"))
	return served, err
}

func (r releases) Promote(ctx context.Context, number int) (promoted release.Release, err error) {
	err = r.do(ctx, post(&promoted, "releases", strconv.Itoa(number), "promote"))
	return promoted, err
}

func (r releases) Halt(ctx context.Context, number int, reason string) (halted release.Release, err error) {
	what := post(&halted, "releases", strconv.Itoa(number), "halt")
	what.body = map[string]any{"reason": reason}
	err = r.do(ctx, what)
	return halted, err
}

func (r releases) Trial(ctx context.Context) (trial admin.Trial, err error) {
	err = r.do(ctx, get(&trial, "trial"))
	return trial, err
}

func (r releases) Freeze(ctx context.Context, frozen bool) error {
	what := "thaw"
	if frozen {
		what = "freeze"
	}
	return r.do(ctx, post(nil, what))
}

func (r releases) Delete(ctx context.Context, number int) error {
	return r.do(ctx, call{method: http.MethodDelete, path: []string{"releases", strconv.Itoa(number)}})
}
