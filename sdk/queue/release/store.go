package release

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Store has the releases of a tenant in its Redis. It is safe for concurrent use.
type Store struct{ store *store.Store }

var _ Target = (*Store)(nil)

// NewStore returns the releases of the client's tenant.
func NewStore(client *queue.Client) *Store { return &Store{client.Store()} }

// MissingPieces implements Target. The error is ErrNoRoom if the tenant has no room for the pieces.
func (s *Store) MissingPieces(ctx context.Context, sizes map[string]int64) ([]string, error) {
	if len(sizes) > maxAsked {
		return nil, fmt.Errorf("%w: %d pieces: ask for at most %d", queue.ErrInvalid, len(sizes), maxAsked)
	}
	args := []any{MaxStored, maxPieces}
	for digest, size := range sizes {
		if !digestForm.MatchString(digest) || size < 1 || size > PieceBytes {
			return nil, fmt.Errorf("%w: piece %.70q of %d bytes: use the 64 hex digits of a SHA-256, and 1 to %d bytes",
				queue.ErrInvalid, digest, size, PieceBytes)
		}
		args = append(args, digest, size)
	}
	reply, err := s.piece(ctx, "want", args...)
	if err != nil {
		return nil, store.Wrap("look for pieces of a release", err)
	}
	if total, full := strings.CutPrefix(store.AsString(reply), "full "); full {
		return nil, fmt.Errorf("%w: the releases of the tenant have %d MiB of at most %d MiB: delete some with `quern plugin delete`, and try again in an hour",
			ErrNoRoom, store.AsInt(total)>>20, MaxStored>>20)
	}
	missing := []string{}
	for _, digest := range store.AsList(reply) {
		missing = append(missing, store.AsString(digest))
	}
	return missing, nil
}

// PutPiece implements Target. The error is queue.ErrInvalid if the data has another digest, or nobody asked for it.
func (s *Store) PutPiece(ctx context.Context, digest string, data []byte) error {
	if digestOf(data) != digest {
		return fmt.Errorf("%w: a piece of %d bytes has not the digest %.70q: send the bytes again", queue.ErrInvalid, len(data),
			digest)
	}
	reply, err := s.piece(ctx, "put", digest, data)
	if err == nil && reply != "ok" {
		err = fmt.Errorf("%w: nobody asked for piece %s of %d bytes: look for missing pieces first", queue.ErrInvalid, digest,
			len(data))
	}
	return store.Wrap("store a piece of a release", err)
}

func (s *Store) piece(ctx context.Context, what string, args ...any) (any, error) {
	return s.store.Eval(ctx, store.NewCall("piece", s.store.Keys.Pieces(), append([]any{s.store.Clock, what}, args...)...))
}

// PushRelease implements Target. If the release that serves has the same content, PushRelease returns that release. A
// push ends the canary that is under way. The errors are ErrFrozen, ErrMissing and ErrNoRoom, and ErrNoRelease for a
// canary of a plugin of which no release serves.
func (s *Store) PushRelease(ctx context.Context, r Release, share *Share) (Release, error) {
	r.Number, r.Created, r.Serving, r.RolledBack, r.Reason, r.Frozen, r.Stage = 0, 0, false, 0, "", 0, nil
	if err := r.validate(); err != nil {
		return Release{}, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return Release{}, err
	}
	if len(text) > maxRecord {
		return Release{}, fmt.Errorf("%w: release of plugin %s: its description has %d bytes: name fewer files, or files with shorter paths",
			queue.ErrInvalid, r.Plugin, len(text))
	}
	same := []any{r.Files, r.Signatures}
	if r.Artifact != "" {
		same = append(same, r.Artifact)
	}
	content, _ := json.Marshal(same) // the whole release was encoded above
	shared, err := s.shareText(ctx, &r, share)
	if err != nil {
		return Release{}, err
	}
	args := []any{text, digestOf(content), MaxKept, MaxPlugins, shared, 0}
	if share != nil {
		args[len(args)-1] = len(share.Steps)
	}
	for digest, size := range r.Pieces() {
		args = append(args, digest, size)
	}
	number, err := s.rollout(ctx, r.Plugin, "push", args...)
	if err != nil {
		return Release{}, err
	}
	return s.Release(ctx, r.Plugin, number)
}

// shareText returns the share of a canary as JSON; "" if there is none. A canary must not serve queues that the release
// in its place does not serve: these have no other version.
func (s *Store) shareText(ctx context.Context, r *Release, share *Share) ([]byte, error) {
	if share == nil {
		return nil, nil
	}
	if err := share.Validate(); err != nil {
		return nil, err
	}
	all, err := s.Releases(ctx, r.Plugin)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		for _, name := range r.Queues {
			if one.Serving && len(one.Queues) > 0 && !slices.Contains(one.Queues, name) {
				return nil, fmt.Errorf("%w: canary of plugin %s: release %d, which serves, has no queue %q: push without --canary",
					queue.ErrInvalid, r.Plugin, one.Number, name)
			}
		}
	}
	return json.Marshal(share)
}

// PromoteRelease makes the canary of a plugin serve all tasks, and returns it. A number of 0 means whichever release is
// the canary. The errors are ErrNoCanary and ErrFrozen.
func (s *Store) PromoteRelease(ctx context.Context, plugin string, number int) (Release, error) {
	return s.staged(ctx, plugin, "promote", optional(number))
}

// HaltRelease ends the canary of a plugin, which gets no more tasks, and returns it. A number of 0 means whichever
// release is the canary. The error is ErrNoCanary if there is none; a canary may be halted twice.
func (s *Store) HaltRelease(ctx context.Context, plugin string, number int, reason string) (Release, error) {
	reason = strings.ToValidUTF8(reason, "�")
	if len(reason) > maxNote {
		return Release{}, fmt.Errorf("%w: the reason has %d bytes: use at most %d", queue.ErrInvalid, len(reason), maxNote)
	}
	return s.staged(ctx, plugin, "halt", optional(number), reason)
}

// AdvanceRelease ends a step of a canary, the one with this index. The next step follows; after the last one, the
// canary serves. If the canary is in another step already, nothing changes. The errors are ErrNoCanary and ErrFrozen.
func (s *Store) AdvanceRelease(ctx context.Context, plugin string, number, step int) (Release, error) {
	return s.staged(ctx, plugin, "advance", strconv.Itoa(number), step)
}

func (s *Store) staged(ctx context.Context, plugin, what string, args ...any) (Release, error) {
	number, err := s.rollout(ctx, plugin, what, args...)
	if err != nil {
		return Release{}, err
	}
	return s.Release(ctx, plugin, number)
}

// ServeRelease makes hosts serve another release of a plugin, and returns it. It ends a canary, unless that is the
// release. A number of 0 means the newest release before the one that serves, without those that were rolled back or
// never served.
func (s *Store) ServeRelease(ctx context.Context, plugin string, number int) (Release, error) {
	return s.staged(ctx, plugin, "serve", optional(number))
}

// FreezeReleases makes pushes of a plugin fail with ErrFrozen, or ends that.
func (s *Store) FreezeReleases(ctx context.Context, plugin string, frozen bool) error {
	what := "thaw"
	if frozen {
		what = "freeze"
	}
	_, err := s.rollout(ctx, plugin, what)
	return err
}

// DeleteRelease deletes a release that does not serve, or all releases of the plugin if number is 0: hosts then serve
// it no longer. The error is ErrServes for a release that serves, ErrCanary for the canary, and ErrFrozen for all
// releases of a frozen plugin.
func (s *Store) DeleteRelease(ctx context.Context, plugin string, number int) error {
	_, err := s.rollout(ctx, plugin, "delete", optional(number))
	return err
}

func optional(number int) string { return store.Optional(number != 0, strconv.Itoa(number)) }

// rollout runs rollout.lua, and returns the number in its answer.
func (s *Store) rollout(ctx context.Context, plugin, what string, args ...any) (int, error) {
	_, number, err := s.change(ctx, plugin, what, args...)
	return number, err
}

// change runs rollout.lua. It returns the number in its answer, and whether the call changed anything.
func (s *Store) change(ctx context.Context, plugin, what string, args ...any) (changed bool, of int, err error) {
	if err := ValidPlugin(plugin); err != nil {
		return false, 0, err
	}
	call := store.NewCall("rollout", s.store.Keys.Releases(), append([]any{s.store.Clock, plugin, what}, args...)...)
	call.Keys = append(call.Keys, s.store.Keys.Release(plugin))
	reply, err := s.store.Eval(ctx, call)
	answer, number, _ := strings.Cut(store.AsString(reply), " ")
	switch {
	case err != nil:
		err = cmp.Or(s.store.Over(err), err)
	case answer == "none":
		err = ErrNoRelease
	case answer == "frozen":
		err = ErrFrozen
	case answer == "serves":
		err = ErrServes
	case answer == "nocanary":
		err = ErrNoCanary
	case answer == "canary":
		err = ErrCanary
	case answer == "missing":
		err = fmt.Errorf("%w: %s: put it, or push again", ErrMissing, number)
	case answer == "full":
		err = fmt.Errorf("%w: %d plugins of the tenant have releases", ErrNoRoom, MaxPlugins)
	}
	return answer == "ok", int(store.AsInt(number)), store.Wrap(fmt.Sprintf("%s release of plugin %s", what, plugin), err)
}

// Release reads a release of a plugin. The error is ErrNoRelease if it does not exist.
func (s *Store) Release(ctx context.Context, plugin string, number int) (Release, error) {
	all, err := s.Releases(ctx, plugin)
	if err != nil {
		return Release{}, err
	}
	if i := slices.IndexFunc(all, func(r Release) bool { return r.Number == number }); i >= 0 {
		return all[i], nil
	}
	return Release{}, fmt.Errorf("release %d of plugin %s: %w", number, plugin, ErrNoRelease)
}

// Releases reads the releases of a plugin, the newest first. There are none if nobody has pushed the plugin.
func (s *Store) Releases(ctx context.Context, plugin string) ([]Release, error) {
	if err := ValidPlugin(plugin); err != nil {
		return nil, err
	}
	hash, err := s.store.RDB.HGetAll(ctx, s.store.Keys.Release(plugin)).Result()
	if err != nil {
		return nil, store.Wrap("read releases of plugin "+plugin, err)
	}
	all := []Release{}
	for field, text := range hash {
		number, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		r, err := parse(plugin, number, text)
		if err != nil {
			if hash["serving"] == field {
				return nil, fmt.Errorf("release %d of plugin %s is damaged: %w: push the plugin again with `quern plugin push`",
					number, plugin, err)
			}
			return nil, damaged(plugin, number, err)
		}
		r.Serving, r.Created = hash["serving"] == field, seconds(hash[field+" at"])
		back, reason, _ := strings.Cut(hash[field+" back"], " ")
		r.RolledBack, r.Reason, r.Frozen = seconds(back), reason, seconds(hash["frozen"])
		if share, staged := hash[field+" share"]; staged {
			if r.Stage, err = parseStage(share, hash[field+" step"], hash[field+" halted"]); err != nil {
				return nil, damaged(plugin, number, err)
			}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, newer)
	return all, nil
}

func seconds(text string) float64 {
	at := store.ParseSeconds(text)
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

// parse reads a release as PushRelease wrote it.
func parse(plugin string, number int, text string) (r Release, err error) {
	err = json.Unmarshal([]byte(text), &r)
	if r.Plugin, r.Number = plugin, number; err == nil {
		err = r.validate()
	}
	return r, err
}

func damaged(plugin string, number int, err error) error {
	return fmt.Errorf("release %d of plugin %s is damaged: %w: delete it with `quern plugin delete %s %d`", number, plugin, err,
		plugin, number)
}

// parseStage reads the state of a canary as rollout.lua wrote it: its share as JSON, "STEP SECOND STEPS", and "SECOND REASON"
// if it is halted.
func parseStage(share, step, halted string) (*Stage, error) {
	c := new(Stage)
	if err := json.Unmarshal([]byte(share), &c.Share); err != nil {
		return nil, err
	}
	index, rest, _ := strings.Cut(step, " ")
	since, _, _ := strings.Cut(rest, " ")
	at, reason, _ := strings.Cut(halted, " ")
	c.Step, c.Since, c.Halted, c.Reason = int(store.AsInt(index)), seconds(since), seconds(at), reason
	return c, c.validate()
}

// Served says which release of a plugin hosts are to serve.
type Served struct {
	Release
	Before *Release // the release to serve if that fails; nil if there is none
	// Canary is the release that gets a share of the tasks, with its Stage; nil if there is none.
	Canary *Release
	Err    error // why the entry cannot be read; the release then has only its Plugin and Number
}

// Generation returns a text that is different after each change of the tenant's releases; "" before the first one.
func (s *Store) Generation(ctx context.Context) (string, error) {
	text, err := s.store.RDB.HGet(ctx, s.store.Keys.Releases(), generation).Result()
	if store.IsNil(err) {
		return "", nil
	}
	return text, store.Wrap("read generation of releases", err)
}

// Now returns the time by Redis's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// generation is the field of NS_releases with the generation, and of NS_pieces with the bytes of all pieces. No plugin
// has this name.
const generation = "."

// Serving lists the releases to serve, by plugin. It also returns their generation.
func (s *Store) Serving(ctx context.Context) (all map[string]Served, of string, err error) {
	all = make(map[string]Served)
	of, err = s.Generation(ctx) // before the rest: a change meanwhile only makes hosts read once more
	if of == "" {
		return all, "", err
	}
	err = s.each(ctx, s.store.Keys.Releases(), func(plugin, text string) {
		if ValidPlugin(plugin) == nil {
			all[plugin] = parseServed(plugin, text)
		}
	})
	for plugin, one := range all {
		if one.Err != nil {
			text, _ := s.store.RDB.HGet(ctx, s.store.Keys.Release(plugin), "serving").Result()
			one.Number, _ = strconv.Atoi(text) // only people read it: it may be 0
			all[plugin] = one
		}
	}
	return all, of, store.Wrap("read releases", err)
}

// scanned is how many fields of a hash one call reads, about.
const scanned = 64

// each calls visit for each field of a hash, perhaps twice.
func (s *Store) each(ctx context.Context, key string, visit func(field, value string)) error {
	for cursor := uint64(0); ; {
		found, next, err := s.store.RDB.HScan(ctx, key, cursor, "", scanned).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(found); i += 2 {
			visit(found[i], found[i+1])
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func parseServed(plugin, text string) Served {
	broken := func(err error) Served {
		return Served{
			Release: Release{Plugin: plugin},
			Err:     fmt.Errorf("what hosts are to serve is damaged: %w: push the plugin again with `quern plugin push`", err),
		}
	}
	lines := strings.Split(text, "\n")
	var read []Release
	for len(lines) >= 2 {
		number, err := strconv.Atoi(lines[0])
		var r Release
		if err == nil {
			r, err = parse(plugin, number, lines[1])
		}
		if err != nil {
			return broken(err)
		}
		read, lines = append(read, r), lines[2:]
	}
	var canary *Release
	if len(lines) == 1 && len(read) > 0 && lines[0] != "" {
		var err error
		if canary, err = parseCanary(plugin, lines[0]); err != nil {
			return broken(err)
		}
	}
	switch len(read) {
	case 0:
		return broken(errors.New("it names no release"))
	case 1:
		return Served{Release: read[0], Canary: canary}
	}
	return Served{Release: read[0], Before: &read[1], Canary: canary}
}

// parseCanary reads the line of a canary as rollout.lua wrote it.
func parseCanary(plugin, line string) (*Release, error) {
	var staged struct { // as show of rollout.lua has it
		Number  int             `json:"number"`
		Stage   *Stage          `json:"stage"`
		Release json.RawMessage `json:"release"`
	}
	if err := json.Unmarshal([]byte(line), &staged); err != nil {
		return nil, err
	}
	r, err := parse(plugin, staged.Number, string(staged.Release))
	if err != nil {
		return nil, err
	}
	if staged.Stage == nil {
		return nil, errors.New("the canary has no share")
	}
	r.Stage = staged.Stage
	return &r, staged.Stage.validate()
}

// Piece reads a piece. The error is ErrMissing if Redis does not have it, or has other bytes.
func (s *Store) Piece(ctx context.Context, digest string) ([]byte, error) {
	data, err := s.store.RDB.Get(ctx, s.store.Keys.Piece(digest)).Bytes()
	switch {
	case store.IsNil(err):
		return nil, fmt.Errorf("%w: %s: push the plugin again with `quern plugin push`", ErrMissing, digest)
	case err != nil:
		return nil, store.Wrap("read piece "+digest, err)
	case digestOf(data) != digest:
		return nil, fmt.Errorf("%w: the key %s has other bytes: delete it, and push the plugin again with `quern plugin push`",
			ErrMissing, s.store.Keys.Piece(digest))
	}
	return data, nil
}

const (
	// keptPieces is how long a piece is kept that no release names, after somebody last asked for it.
	keptPieces = time.Hour
	// droppedAtOnce is how many pieces one call deletes.
	droppedAtOnce = 100
)

// Collect deletes the pieces that no release names, and returns how many it deleted.
func (s *Store) Collect(ctx context.Context) (deleted int, err error) {
	if pieces, err := s.store.RDB.HLen(ctx, s.store.Keys.Pieces()).Result(); pieces == 0 {
		return 0, store.Wrap("count pieces of releases", err)
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	before := now.Add(-keptPieces)
	named, err := s.named(ctx)
	if err != nil {
		return 0, err
	}
	var old []string
	if err := s.each(ctx, s.store.Keys.Pieces(), func(digest, text string) {
		_, asked, _ := strings.Cut(text, " ")
		if !named[digest] && digest != generation && store.ParseSeconds(asked).Before(before) {
			old = append(old, digest)
		}
	}); err != nil {
		return 0, store.Wrap("list pieces of releases", err)
	}
	for some := range slices.Chunk(old, droppedAtOnce) {
		reply, err := s.piece(ctx, "drop", store.Named(some, store.Seconds(before))...)
		if err != nil {
			return deleted, store.Wrap("delete pieces of releases", err)
		}
		deleted += int(store.AsInt(reply))
	}
	return deleted, nil
}

// named returns the set of pieces that releases name. A damaged release ends it with an error: its pieces are unknown.
func (s *Store) named(ctx context.Context) (map[string]bool, error) {
	var plugins []string
	if err := s.each(ctx, s.store.Keys.Releases(), func(plugin, _ string) {
		if ValidPlugin(plugin) == nil {
			plugins = append(plugins, plugin)
		}
	}); err != nil {
		return nil, store.Wrap("list releases", err)
	}
	named := make(map[string]bool)
	for _, plugin := range plugins {
		all, err := s.Releases(ctx, plugin)
		if err != nil {
			return nil, err
		}
		for i := range all {
			for digest := range all[i].Pieces() {
				named[digest] = true
			}
		}
	}
	return named, nil
}

// Plugins lists the plugins that have releases, sorted.
func (s *Store) Plugins(ctx context.Context) ([]string, error) {
	all, _, err := s.Serving(ctx)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}
