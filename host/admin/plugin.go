package admin

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Plugin describes a plugin that live hosts published. If several hosts published the same description, they share one
// Plugin, and Nodes lists them.
type Plugin struct {
	upkeep.PluginInfo
	Nodes []string `json:"nodes"`
}

// Name returns the key by which plugins are sorted; it is unique in a list.
func (p Plugin) Name() string {
	return strings.Join([]string{p.Tenant, p.Plugin, p.State, p.Digest, p.Error, strconv.Itoa(p.Release)}, "\x00")
}

// FailedBuild returns why a plugin that serves the queue could not be built the last time, so that the version before
// answers; "" if none is known.
func FailedBuild(all []Plugin, queue string) string {
	for _, p := range all {
		serves := func(other Plugin) bool {
			return other.Plugin == p.Plugin && slices.Contains(other.Queues, queue) && other.State == plugins.StateServing
		}
		if p.State == plugins.StateUnbuilt && slices.ContainsFunc(all, serves) {
			return p.Error
		}
	}
	return ""
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[\w.][\w.-]*$`)

// Plugins lists the plugins that live hosts published.
func (t *Direct) Plugins(ctx context.Context) ([]Plugin, error) {
	list := []Plugin{}
	err := upkeep.PublishedPlugins(ctx, t.Client, func(host string, p upkeep.PluginInfo) {
		i := slices.IndexFunc(list, func(other Plugin) bool {
			other.Since = p.Since
			return reflect.DeepEqual(other.PluginInfo, p)
		})
		if i < 0 {
			i = len(list)
			list = append(list, Plugin{PluginInfo: p})
		}
		list[i].Since = min(list[i].Since, p.Since)
		list[i].Nodes = append(list[i].Nodes, host)
	})
	if err != nil {
		return nil, err
	}
	quarantines, err := t.Fleet.Quarantines(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		p := &list[i]
		at := slices.IndexFunc(quarantines, func(q listen.Quarantine) bool {
			return q.Plugin == p.Plugin &&
				q.Digest == p.Digest
		})
		if at < 0 || p.State != plugins.StateServing && p.State != plugins.StateCanary {
			continue
		}
		p.State = "quarantined" // hosts do not run its tasks
		word := p.Plugin
		if !plainWord.MatchString(word) { // a digest needs no quotes in a shell
			word = p.Digest
		}
		p.Error = fmt.Sprintf("%s; replace it, or use `quern plugin release %s`", quarantines[at].Why(), word)
	}
	slices.SortStableFunc(list, func(a, b Plugin) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}
