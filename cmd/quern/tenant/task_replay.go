package tenant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/sdk/queue/release"
)

// taskReplay holds the flags of `quern task replay`.
type taskReplay struct {
	env     cli.Environment
	engine  *runtime.Config
	until   int64
	log     bool
	module  string
	plugins string
	update  string
	secrets []string
}

func newTaskReplay(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay ID|FILE", Short: "Replay a recorded run of a task on this machine",
		Long: "Replays a run of a task on this machine, from its record: the same module with the same input gets the same\n" +
			"answers of clocks, random numbers and services, so it ends in the same way at the same fuel. Nothing outside\n" +
			"is asked or changed. A host keeps records if the plugin's manifest says record: failed; `quern help replay`\n" +
			"tells more. FILE is a record that --update-record wrote.\n\n" +
			"The module is that of --module, or the recorded one: of a release of the plugin, or in --plugins, the current\n" +
			"folder or plugins. With another module, calls of services must still come in the recorded order.\n" +
			"Exit status: 0 it completed, or stopped at --until, 1 it failed, 3 it took another way than recorded.",
		Example: "  quern task replay 5f0c1b9e --log\n" +
			"  quern task replay 5f0c1b9e --until 1200000\n" +
			"  quern task replay 5f0c1b9e --module fixed.wasm --update-record fixed.record\n" +
			"  quern task replay fixed.record --module fixed.wasm",
		Args: cli.Arguments(1, 1),
	}
	f := cmd.Flags()
	r := &taskReplay{env: env, engine: sandbox.EngineFlags(f)}
	option.Number(f, &r.until, "until", "stop when the handler has burned this much fuel, and say where it is; 0 for its end", 0,
		math.MaxInt64, "use 0 or more")
	f.BoolVar(&r.log, "log", false, "print the log of the handler to stderr")
	f.StringVar(&r.module, "module", "", "replay with this `FILE`, which may be another module than the recorded one")
	f.StringVar(&r.plugins, "plugins", "", "`DIR` with the recorded module and its manifest")
	f.StringVar(&r.update, "update-record", "", "write the record of the replay to `FILE`, with the input of the task")
	f.StringArrayVar(&r.secrets, "secret", nil, "the value of a secret that the run has read, `NAME=VALUE`, or NAME for the environment variable of that name; for several give it again")
	cli.NotSettings(f, "until", "log", "module", "plugins", "update-record", "secret")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		record, client, err := r.read(cmd, args[0])
		if err != nil {
			return err
		}
		if client != nil {
			defer client.Close()
		}
		return cli.Interruptibly(cmd, func() error { return r.run(cmd, client, record) },
			func() error { return errors.New("interrupted") })
	}
	return cmd
}

// maxRecordFile is the maximum number of bytes of a file with a record.
const maxRecordFile = 64 << 20

func readRecord(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecordFile+1))
	if err == nil && len(data) > maxRecordFile {
		err = replay.ErrTooLarge
	}
	return data, err
}

// read reads the record from a file or, with its input, from the task. client is nil for a file.
func (r *taskReplay) read(cmd *cobra.Command, from string) (record *replay.Record, client admin.Tenant, err error) {
	data, err := readRecord(from)
	switch {
	case errors.Is(err, replay.ErrTooLarge):
		return nil, nil, cli.Usagef("%s has more than %d MiB, and is no record: name a file that --update-record wrote, or the ID of a task",
			from, maxRecordFile>>20)
	case err == nil:
		if record, err = replay.Decode(data); err != nil {
			err = cli.Usagef("%s: %w: name a file that --update-record wrote, or the ID of a task", from, err)
		}
		return record, nil, err
	case strings.ContainsAny(from, `/\`) || strings.HasSuffix(from, ".record"):
		return nil, nil, cli.Usagef("read record: %w", err)
	}
	if client, err = dial(cmd, r.env); err != nil {
		return nil, nil, err
	}
	record, err = recordOf(cmd.Context(), client, from)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return record, client, nil
}

func recordOf(ctx context.Context, client admin.Tenant, id string) (*replay.Record, error) {
	task, err := findTask(ctx, client, id)
	if err != nil {
		return nil, err
	}
	if task.Record != nil && task.Record.Size == 0 {
		return nil, cli.Refusedf("the record of run %d of task %s was larger than limits.record of its plugin, and is not kept: raise that in the manifest",
			task.Record.Run, task.ID)
	}
	data, err := client.Record(ctx, task.ID)
	if err != nil {
		return nil, err
	}
	record, err := replay.Decode(data)
	if err != nil {
		return nil, cli.Refusedf("task %s: %w", task.ID, err)
	}
	record.Input = task.ParametersBase64
	if task.Parameters != nil {
		record.Input = []byte(*task.Parameters)
	}
	if record.Input == nil {
		record.Input = []byte{}
	}
	return record, nil
}

// run replays the record and reports how that ended.
func (r *taskReplay) run(cmd *cobra.Command, client admin.Tenant, record *replay.Record) error {
	p, err := r.find(cmd, client, record)
	if err != nil {
		return err
	}
	options := replay.Options{Changed: digestOf(p.Binary()) != record.Module}
	if options.Secrets, err = r.secretsOf(record); err != nil {
		return err
	}
	outcome, tape, err := r.play(cmd, p, record, options)
	if err != nil {
		return err
	}
	return r.report(cmd, p, record, options, outcome, tape)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return show.DigestPrefix + hex.EncodeToString(sum[:])
}

// find returns the plugin to replay with.
func (r *taskReplay) find(cmd *cobra.Command, client admin.Tenant, record *replay.Record) (*pluginfile.File, error) {
	if r.module != "" {
		return readPlugin(r.module)
	}
	name := record.Plugin + manifest.ModuleSuffix
	if r.plugins != "" {
		p, err := readPlugin(filepath.Join(r.plugins, name))
		if err == nil {
			err = isRecorded(p, record)
		}
		return p, err
	}
	var unread error
	if client != nil {
		var p *pluginfile.File
		if p, unread = releasedPlugin(cmd.Context(), client, record); p != nil {
			return p, nil
		}
	}
	for _, dir := range []string{".", plugins.DefaultDir, record.Plugin} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		if p, err := readPlugin(filepath.Join(dir, name)); err == nil && isRecorded(p, record) == nil {
			return p, nil
		}
	}
	if unread != nil {
		return nil, unread
	}
	return nil, cli.Refusedf("no module %s with the digest %s is in a release, in this folder or in %s: name its folder with --plugins DIR, or a module with --module FILE",
		name, record.Module, plugins.DefaultDir)
}

func readPlugin(path string) (*pluginfile.File, error) {
	p, err := pluginfile.Read(path)
	if err == nil {
		err = p.Refusal()
	}
	return p, err
}

// isRecorded returns an error if the plugin's module or manifest is not the recorded one.
func isRecorded(p *pluginfile.File, record *replay.Record) error {
	if is := digestOf(p.Binary()); is != record.Module {
		return cli.Refusedf("%s has the digest %s, and the run was of %s: replay with another module by --module %s", p.Path, is,
			record.Module, cli.ShellWord(p.Path))
	}
	text, err := os.ReadFile(p.ManifestPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.Usagef("read manifest: %w", err)
	}
	is := ""
	if err == nil {
		is = digestOf(text)
	}
	if is != record.Manifest {
		return cli.Refusedf("%s has the digest %s, and the run was with %s: replay with another manifest by --module %s", p.ManifestPath,
			cmp.Or(is, "none"), cmp.Or(record.Manifest, "none"), cli.ShellWord(p.Path))
	}
	return nil
}

// releasedPlugin fetches the recorded plugin from a release that is kept in Redis; nil if there is none.
func releasedPlugin(ctx context.Context, client admin.Tenant, record *replay.Record) (*pluginfile.File, error) {
	releases := client.Releases(record.Plugin)
	all, err := releases.List(ctx)
	if errors.Is(err, release.ErrNoRelease) || errors.Is(err, admin.ErrForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Artifact != "" || show.DigestPrefix+all[i].ModuleDigest() != record.Module || !hasManifest(&all[i], record) {
			continue
		}
		dir, err := os.MkdirTemp("", "quern-replay-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for the plugin: %w", err)
		}
		defer os.RemoveAll(dir)
		for _, file := range all[i].Files {
			if err := fetchFile(ctx, releases, &file, dir); err != nil {
				return nil, fmt.Errorf("fetch release %d of %s: %w", all[i].Number, record.Plugin, err)
			}
		}
		return readPlugin(filepath.Join(dir, record.Plugin+manifest.ModuleSuffix))
	}
	return nil, nil
}

// hasManifest reports whether the release has the recorded manifest.
func hasManifest(r *release.Release, record *replay.Record) bool {
	at := slices.IndexFunc(r.Files, func(f release.File) bool { return f.Name == record.Plugin+manifest.Suffix })
	if at < 0 {
		return record.Manifest == ""
	}
	return show.DigestPrefix+r.Files[at].Digest == record.Manifest
}

func fetchFile(ctx context.Context, releases admin.Releases, file *release.File, dir string) error {
	if !filepath.IsLocal(file.Name) {
		return fmt.Errorf("the file %q lies outside of its folder", file.Name)
	}
	var data []byte
	for _, piece := range file.Pieces {
		part, err := releases.Piece(ctx, piece)
		if err != nil {
			return err
		}
		data = append(data, part...)
	}
	path := filepath.Join(dir, filepath.FromSlash(file.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// secretsOf returns the values of the secrets that the run has read. It is an error if one is missing.
func (r *taskReplay) secretsOf(record *replay.Record) (map[string][]byte, error) {
	values := make(map[string][]byte)
	for _, text := range r.secrets {
		name, value, found := strings.Cut(text, "=")
		if !found {
			if value = r.env.Get(name); value == "" {
				return nil, cli.Usagef("--secret %s: the environment has no variable of that name: set it, or write --secret %s=VALUE", name,
					name)
			}
		}
		values[name] = []byte(value)
	}
	names, err := record.SecretNames()
	if err != nil {
		return nil, cli.Refusedf("%w", err)
	}
	for _, name := range names {
		if _, given := values[name]; !given {
			return nil, cli.Usagef("the run has read the secret %s, whose value no record has: pass --secret %s=VALUE, or --secret %s for the environment variable of that name",
				name, name, name)
		}
	}
	return values, nil
}

// play runs the module against the record.
func (r *taskReplay) play(cmd *cobra.Command, p *pluginfile.File, record *replay.Record, options replay.Options,
) (outcome runtime.Outcome, tape *replay.Tape, err error) {
	ctx := cmd.Context()
	config := *r.engine
	config.Logger = hclog.New(&hclog.LoggerOptions{Name: "quern", Level: hclog.Off})
	engine, _, err := sandbox.NewEngine(ctx, r.env, config)
	if err != nil {
		return outcome, nil, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := engine.Load(ctx, p.Binary())
	if refused, ok := errors.AsType[*runtime.RefusedError](err); ok {
		p.Refusals = refused.Refusals
		return outcome, nil, p.Refusal()
	}
	if err != nil {
		return outcome, nil, err
	}
	defer module.Close(context.WithoutCancel(ctx))
	pool := module.Bind(runtime.ReplayProfile(record, options, p.Files))
	tape = record.Play(options)
	until := r.until
	if record.Outcome.Stopped && !options.Changed && (until == 0 || record.Outcome.Fuel < until) {
		until = record.Outcome.Fuel
	}
	call := runtime.ReplayCall(record, tape)
	call.Until = until
	if r.log {
		call.Log = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	}
	return pool.Run(ctx, call), tape, nil
}

// report says how the replay ended, and how that compares with the record.
func (r *taskReplay) report(cmd *cobra.Command, p *pluginfile.File, record *replay.Record, options replay.Options,
	outcome runtime.Outcome, tape *replay.Tape,
) error {
	place := ""
	if outcome.Place != "" {
		place = " at " + outcome.Place
	}
	frames := func() {
		for i, frame := range outcome.Backtrace {
			cli.Note(cmd, "frame %d: %s", i, frame)
		}
	}
	diverged, differs := errors.AsType[*replay.Diverged](outcome.Err)
	ended := errors.Is(outcome.Err, replay.ErrEnd)
	stopped := errors.Is(outcome.Err, replay.ErrStopped)
	switch {
	case differs:
		frames()
		return cli.Refusedf("the replay took another way than run %d of task %s: %w%s", record.Run, record.Task, diverged, place)
	case stopped && !(record.Outcome.Stopped && !options.Changed && (r.until == 0 || record.Outcome.Fuel < r.until)):
		cli.Note(cmd, "stopped at fuel %d%s", outcome.Fuel, place)
		frames()
		return nil
	case ended || stopped: // where the host had ended the run
		outcome.Kind, outcome.Message = runtime.OutcomeKind(record.Outcome.Kind), record.Outcome.Message
	case outcome.Kind == runtime.HostFault && record.Outcome.Kind != string(runtime.HostFault):
		return fmt.Errorf("internal error: %w", outcome.Err)
	case outcome.Kind == runtime.Cancelled:
		return outcome.Err
	}
	now := outcome.Recorded()
	if now.Stopped = ended || stopped; now.Stopped {
		now.Limit = record.Outcome.Limit
	}
	if err := r.write(cmd, p, record, tape, now); err != nil {
		return err
	}
	for _, line := range tape.Sent {
		cli.Note(cmd, "%s", line)
	}
	var different []string
	if !options.Changed {
		different = differences(&record.Outcome, &now)
	} else {
		cli.Note(cmd, "the recorded module: %s", endText(&record.Outcome))
		cli.Note(cmd, "this module: %s", endText(&now))
	}
	if len(different) > 0 {
		return cli.Refusedf("the replay differs from run %d of task %s: %s", record.Run, record.Task,
			strings.Join(different, "; "))
	}
	if !options.Changed {
		cli.Note(cmd, "run %d of task %s replayed: the same end at the same fuel, %d", record.Run, record.Task, outcome.Fuel)
	}
	if outcome.Kind != runtime.Complete {
		frames()
		return &cli.ExitError{Status: cli.ExitFailed, Err: fmt.Errorf("task %s failed: %s", record.Task, outcome.Message)}
	}
	return cli.WriteResult(cmd, outcome.Output, "run it again with > FILE")
}

// write writes the record of the replay to the file of --update-record.
func (r *taskReplay) write(cmd *cobra.Command, p *pluginfile.File, record *replay.Record, tape *replay.Tape,
	now replay.Outcome,
) error {
	if r.update == "" {
		return nil
	}
	updated := *record
	updated.Module, updated.Outcome = digestOf(p.Binary()), now
	if text, err := os.ReadFile(p.ManifestPath); err == nil {
		updated.Manifest = digestOf(text)
	}
	err := tape.Finish(&updated)
	var data []byte
	if err == nil {
		data, err = updated.Encode(1 << 30)
	}
	if err == nil {
		err = atomicfile.Write(r.update, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	cli.Note(cmd, "%s has the record, with the task's input and the answers of services: mind who may see them", r.update)
	return nil
}

// endText describes an outcome in a line.
func endText(o *replay.Outcome) string {
	text := o.Kind
	if o.Message != "" {
		first, _, _ := strings.Cut(o.Message, "\n")
		text += ": " + first
	}
	return fmt.Sprintf("%s (fuel %d)", text, o.Fuel)
}

// differences lists how the end of a replay differs from the recorded one.
func differences(was, is *replay.Outcome) (all []string) {
	differ := func(what string, was, is any) {
		if was != is {
			all = append(all, fmt.Sprintf("%s is %v, recorded %v", what, is, was))
		}
	}
	differ("its end", was.Kind, is.Kind)
	differ("its exit status", was.Code, is.Code)
	differ("its trap", was.Trap, is.Trap)
	differ("its error", was.Message, is.Message)
	differ("the digest of its result", was.Output, is.Output)
	differ("its fuel", was.Fuel, is.Fuel)
	return all
}
