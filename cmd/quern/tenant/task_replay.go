package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/replay"
)

// taskReplay holds the flags of `quern task replay`.
type taskReplay struct {
	env      cli.Environment
	engine   *runtime.Config
	until    int64
	log      bool
	module   string
	plugins  string
	update   string
	secrets  []string
	identity string
	registry registryOptions // of a release in a registry
	file     string          // from which the record was read; "" if it is from a task
}

func newTaskReplay(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay ID|FILE", Short: "Replay a recorded run of a task on this machine",
		Long: "Replays a run of a task on this machine, from its record: the same module with the same input gets the same\n" +
			"answers of clocks, random numbers and services, so it ends in the same way at the same fuel. Nothing outside\n" +
			"is asked or changed. A host keeps records if the plugin's manifest says record: failed; `quern help replay`\n" +
			"tells more. FILE is a record that --update-record wrote.\n\n" +
			"The module is that of --module, or the recorded one: of a release of the plugin, also in a registry, or in\n" +
			"--plugins, the current folder or handlers. With another module, calls of services must still come in the\n" +
			"recorded order.\n\n" +
			"Exit status: 0 it completed, or stopped at --until, 1 it failed, 3 it took another way than recorded.",
		Example: "  quern task replay 5f0c1b9e --log\n" +
			"  quern task replay 5f0c1b9e --until 1200000\n" +
			"  quern task replay 5f0c1b9e --identity key.txt\n" +
			"  quern task replay 5f0c1b9e --module fixed.wasm --update-record fixed.record\n" +
			"  quern task replay fixed.record --module fixed.wasm",
		Args: cli.Arguments(1, 1),
	}
	f := cmd.Flags()
	r := &taskReplay{env: env, engine: sandbox.EngineFlags(f)}
	option.Number(f, &r.until, "until", "stop when the handler has burned this much fuel, and say where it is; 0 for its end", 0,
		math.MaxInt64, fmt.Sprintf("write an amount of fuel, from 1 to %d, or 0 for the end of the run", math.MaxInt64))
	f.BoolVar(&r.log, "log", false, "print the log of the handler to stderr")
	f.StringVar(&r.module, "module", "", "replay with this `FILE`, which may be another module than the recorded one")
	f.StringVar(&r.plugins, "plugins", "", "`DIR` with the recorded module and its manifest")
	f.StringVar(&r.update, "update-record", "", "write the record of the replay to `FILE`, with the input of the task")
	f.StringArrayVar(&r.secrets, "secret", nil, "the value of a secret that the run has read, `NAME=VALUE`, or NAME for the environment variable of that name; for several give it again")
	f.StringVar(&r.identity, "identity", "", "`FILE` with the private key for an encrypted record, as age-keygen writes it (default none)")
	r.registry.access(f)
	cli.NotSettings(f, "until", "log", "module", "plugins", "update-record", "secret")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(r.checkSecrets(), r.checkUpdate()); err != nil {
			return err
		}
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
