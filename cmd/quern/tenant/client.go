package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// list prints a list for people or as JSON. If the list is empty, it also tells people where it looked. Unless they
// named a tenant, it tells them which other tenants there are.
func list(cmd *cobra.Command, client admin.Tenant, json bool, all any, heading string, rows []show.View) error {
	if err := show.Table(cmd, json, all, heading, rows); err != nil || json {
		return err
	}
	if len(rows) == 0 {
		var filters []string
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				filters = append(filters, " --"+flag.Name+" "+cli.ShellWord(flag.Value.String()))
			}
		})
		cli.Note(cmd, "nothing found in tenant %s at %s by `%s%s`", client.Tenant(), client.Address(),
			strings.TrimSpace(cmd.CommandPath()+" "+strings.Join(cmd.Flags().Args(), " ")), strings.Join(filters, ""))
	}
	// Looking for tenants scans Redis's keys. Do it only for a person who might miss something.
	if cli.IsGiven(cmd.Flag("tenant")) || cmd.ErrOrStderr() == io.Discard ||
		len(rows) > 0 && !show.IsTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	tenants, err := client.Tenants(cmd.Context())
	tenants = slices.DeleteFunc(tenants, func(name string) bool { return name == client.Tenant() })
	if err == nil && len(tenants) > 0 { // ignore errors: not every user of Redis is allowed to scan
		cli.Note(cmd, "this is tenant %s; there are also %s: name one with --tenant", client.Tenant(), firstOf(tenants))
	}
	return nil
}

// firstOf returns at most 20 of the names, and the number of the other names.
func firstOf(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// warnUnserved warns of a queue that no host serves or is known to have served. It says nothing to a producer who is
// not allowed to read the counts. done is what to say before the warning.
func warnUnserved(cmd *cobra.Command, client admin.Tenant, name, done string) {
	if warning, err := admin.UnservedQueue(cmd.Context(), client, name); err == nil && warning != "" {
		cli.Note(cmd, "%s%s", done, warning)
	}
}

// shownBytes is the maximum number of bytes of a value that people see.
const shownBytes = 2000

// bytesView returns the fields of a value: text, or data in base64 if the value is no text. People see the beginning of
// a long text, and only the size of data.
func bytesView(key string, text *string, data []byte) show.View {
	switch {
	case text != nil:
		return show.View{{key, "", *text}, {"", key, show.Head(*text, shownBytes)}}
	case data != nil:
		return show.View{{key + "_base64", "", data}, {"", key, fmt.Sprintf("(%d bytes)", len(data))}}
	}
	return nil
}

// moment returns a time in seconds as a value of a view; nil if there is no time.
func moment(seconds float64) any { return show.Moment(admin.Moment(seconds)) }

// clientRun is the part of a command that uses a client. json is true if -o asks for JSON.
type clientRun = func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error

// connecting completes a command that needs a client. The command must check its arguments in PreRunE, before it
// connects.
func connecting(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := dial(cmd, env)
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, false)
	}
	return cmd
}

// printing is connecting for a command with the flag -o, from which run gets json.
func printing(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	output := option.Output(cmd)
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return run(cmd, client, args, output.JSON())
	})
}

// errSeen ends --watch, because nothing will change any more.
var errSeen = errors.New("nothing more will change")

// watchable is printing for a command with the flag --watch. With the flag it repeats run until that returns errSeen or
// another error, and prints the output whenever it has changed.
func watchable(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	var every time.Duration
	option.DurationWithin(cmd.Flags(), &every, "watch", 0, 100*time.Millisecond, math.MaxInt64, "use at least 100ms",
		"look again, every 2s or as --watch=5s says, and print what has changed")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if flag := cmd.Flag("watch"); every != 0 && flag.Value.String() == flag.NoOptDefVal {
			for _, arg := range args {
				if _, err := time.ParseDuration(arg); err == nil {
					return cli.Usagef("--watch %s: use --watch=%s", arg, arg)
				}
			}
		}
		var err error
		if every == 0 {
			err = run(cmd, client, args, json)
		} else {
			err = show.Watch(cmd, every, func() error { return run(cmd, client, args, json) })
		}
		if errors.Is(err, errSeen) {
			return nil
		}
		return err
	})
}

// clientFlags adds the flags of commands that work both over Redis and by the API of a server.
func clientFlags(commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		connect.Flags(cmd)
		f := cmd.PersistentFlags()
		option.Text(f, new(string), "URL", "server", "`URL` of the API of `quern serve --admin` or `quern admin`, in the place of --redis: https://HOST:PORT, with ?ca=FILE&cert=FILE&key=FILE as needed")
		option.Text(f, new(string), "TOKEN", "token", "`TOKEN` for --server; others on this machine can see it here: better set QUERN_TOKEN, or use --token-file")
		f.String("token-file", "", "`FILE` with the token for --server")
		connect.PayloadKeysFlag(f)
	}
	return commands
}

// direct is a tenant with its own connection to Redis.
type direct struct {
	*admin.Direct
	rdb redis.UniversalClient
}

func (d direct) Close() error { return errors.Join(d.Direct.Close(), d.rdb.Close()) }

// dial connects a client command to the tenant of --tenant, over Redis or by the API of --server.
func dial(cmd *cobra.Command, env cli.Environment) (admin.Tenant, error) {
	tenant, err := connect.Tenant(cmd)
	if err != nil {
		return nil, err
	}
	config := queue.Config{Tenant: tenant, Headers: func(context.Context) map[string]string { return traceOf(env) }}
	if flag := cmd.Flag("replicas"); flag != nil {
		config.Replicas, _ = strconv.Atoi(flag.Value.String())
	}
	if flag := cmd.Flag("server"); flag != nil && (flag.Value.String() != "" || flag.Changed) {
		return connectServer(cmd, config)
	}
	if config.Keys, err = connect.PayloadKeys(cmd); err != nil {
		return nil, err
	}
	rdb, err := connect.Redis(cmd, env, queue.Connect)
	if err != nil {
		return nil, err
	}
	c, err := queue.NewFromRedis(rdb, config)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return direct{admin.NewDirect(c, kv.New(manage.OnTenant(rdb, config.Tenant), config.Tenant)), rdb}, nil
}

// connectServer connects to the tenant by the API of --server.
func connectServer(cmd *cobra.Command, config queue.Config) (admin.Tenant, error) {
	flag := cmd.Flag("server")
	for _, name := range []string{"redis", "redis-file", "payload-keys"} {
		if other := cmd.Flag(name); other.Value.String() != "" || other.Changed {
			return nil, cli.Usagef("both %s and %s are set: leave one of them out", cli.Origin(flag), cli.Origin(other))
		}
	}
	if config.Replicas > 0 {
		return nil, cli.Usagef("--replicas with %s: the API does not wait for replicas: use --redis, or leave --replicas out",
			cli.Origin(flag))
	}
	token, err := tokenOf(cmd)
	if err != nil {
		return nil, err
	}
	c, err := client.New(flag.Value.String(), token, config.Tenant)
	if err != nil {
		return nil, cli.Usagef("%s: %w", cli.Origin(flag), cli.TrimInvalid(err))
	}
	c.Trace = config.Headers(cmd.Context())
	c.Withheld = func(t *admin.Task) {
		cli.Note(cmd, "the token may not see what producers and handlers wrote of task %s: parameters of %d bytes, a result of %d bytes, headers, message and errors", t.ID, t.ParametersSize, t.ResultSize)
	}
	if u, err := url.Parse(c.Address()); err == nil && u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) {
		cli.Note(cmd, "the token crosses the network to %s unencrypted: use https://", u.Host)
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tokenOf returns the token of the settings; "" if there is none.
func tokenOf(cmd *cobra.Command) (string, error) {
	flag, file := cmd.Flag("token"), cmd.Flag("token-file")
	token, err := flag.Value.String(), error(nil)
	switch path := file.Value.String(); {
	case flag.Changed && token == "" || file.Changed && path == "":
		return "", cli.Usagef("--token or --token-file is empty: give it a value, or leave it out")
	case path != "" && token != "":
		return "", cli.Usagef("both %s and %s are set: leave one of them out", cli.Origin(flag), cli.Origin(file))
	case path != "":
		flag = file
		token, err = connect.ReadSetting(cli.Origin(file), path, "the token")
	}
	if strings.ContainsAny(token, " \r\n\t") {
		err = cli.Usagef("%s: the token has a space or a line break in it: give the token alone", cli.Origin(flag))
	}
	return token, err
}

// traceOf returns the trace in the environment (TRACEPARENT, TRACESTATE), which CI systems and shells set. Tasks and
// publications that a command makes join this trace, unless they have their own. An invalid trace is ignored.
func traceOf(env cli.Environment) map[string]string {
	return queue.InheritTrace(map[string]string{
		queue.HeaderTraceparent: env.Get("TRACEPARENT"),
		queue.HeaderTracestate:  env.Get("TRACESTATE"),
	}, nil)
}

// ofTenant makes the command's first argument, if there is one, the tenant, as --tenant is.
func ofTenant(cmd *cobra.Command) *cobra.Command {
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if flag := cmd.Flag("tenant"); flag.Changed && flag.Value.String() != args[0] {
				return cli.Usagef("both the tenant %q and --tenant %s are given: leave --tenant out", args[0], flag.Value)
			}
			if queue.ValidTenant(args[0]) != nil {
				return cli.Usagef("tenant %q: %s", args[0], cli.TenantRule)
			}
			if err := cmd.Flags().Set("tenant", args[0]); err != nil {
				return err
			}
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
	return cmd
}

// warnUnknown warns of a queue that nobody has used yet: its name may be misspelled. done is what to say before the
// warning.
func warnUnknown(cmd *cobra.Command, client admin.Tenant, name, done string) error {
	known, err := client.Queues(cmd.Context())
	if _, ok := known[name]; err == nil && !ok {
		cli.Note(cmd, "%stenant %s has no queue %q yet%s", done, client.Tenant(), name,
			alike(cmd.Context(), client, name, known))
	}
	return err
}

// alike asks whether a queue with a similar name was meant: one that is served, or else one that has tasks; "" if there
// is none.
func alike(ctx context.Context, client admin.Tenant, name string, known map[string]int64) string {
	var served, others []string
	for _, other := range slices.Sorted(maps.Keys(known)) {
		if known[other] > 0 {
			served = append(served, other)
		} else {
			others = append(others, other)
		}
	}
	near := spelling.Nearest(name, served)
	if len(near) == 0 {
		counts, _ := client.QueueCounts(ctx, spelling.Nearest(name, others))
		for _, q := range counts {
			if q.Scheduled+q.Pending+q.Reserved+q.Started+q.Complete+q.Failed > 0 {
				near = append(near, q.Queue)
			}
		}
	}
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + firstOf(near) + "?"
}
