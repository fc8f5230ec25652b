package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// subscriptionView returns the main fields of a subscription, for people. In JSON, a subscription is written as in
// Redis.
func subscriptionView(s *queue.Subscription) show.View {
	filter := show.Pairs(s.Filter.Attributes).String()
	for _, pointer := range slices.Sorted(maps.Keys(s.Filter.Data)) {
		value, _ := json.Marshal(s.Filter.Data[pointer])
		filter = strings.TrimSpace(filter + " " + pointer + "=" + string(value))
	}
	url := ""
	if s.Webhook != nil {
		url = s.Webhook.URL
	}
	state := "active"
	if !s.Active {
		state = strings.TrimSpace("paused " + s.Reason)
	}
	return show.Lines("id", s.ID, "topic", s.Topic, "filter", filter, "queue", s.Queue, "url", url, "state", state)
}

const subscriptionHeading = "ID TOPIC FILTER QUEUE URL STATE"

// subscriptionLines returns all fields of a subscription, for people.
func subscriptionLines(s *queue.Subscription) show.View {
	v := subscriptionView(s)
	if w := s.Webhook; w != nil {
		var expect []string
		for _, status := range w.Expect {
			expect = append(expect, strconv.Itoa(status))
		}
		v = append(v, show.Lines(
			"method", w.Method, "headers", show.Pairs(w.Headers),
			"secret headers", show.Pairs(w.SecretHeaders), "body", string(w.Body), "secrets", w.Secrets,
			"expect", expect, "final", w.Final, "timeout", w.Timeout,
		)...)
	}
	v = append(v, show.Lines(
		"max attempts", attemptsWord(s.Retry.MaxAttempts), "", retryView(s.Retry),
		"timeout", show.Given(show.Span(s.Timeout)),
	)...)
	if s.Priority != nil {
		v = append(v, show.Field{"", "priority", *s.Priority})
	}
	return append(v, show.Lines(
		"fair key", show.Given(s.FairKey), "fair weight", show.Given(s.FairWeight), "concurrency key",
		show.Given(s.ConcurrencyKey), "max concurrent", show.Given(s.MaxConcurrent), "dead", show.Given(s.Dead), "plugin", show.Given(s.Plugin),
		"plugin absent since", show.Moment(s.Absent), "created", show.Moment(s.CreatedAt),
		"updated", show.Moment(s.UpdatedAt),
	)...)
}

// subscriptionFlags holds the flags of `subscription create` and `subscription update`.
type subscriptionFlags struct {
	s        queue.Subscription
	hook     queue.Webhook
	data     []string
	expect   []int
	priority int
	keys     queue.Options // only the keys
	noJitter bool
	clear    []string
}

// clearable maps the names that --clear takes to functions that clear what the names stand for.
var clearable = map[string]func(s *queue.Subscription){
	"filter":   func(s *queue.Subscription) { s.Filter = queue.Filter{} },
	"retry":    func(s *queue.Subscription) { s.Retry = queue.Retry{} },
	"timeout":  func(s *queue.Subscription) { s.Timeout = 0 },
	"priority": func(s *queue.Subscription) { s.Priority = nil },
	"dead":     func(s *queue.Subscription) { s.Dead = "" },
	"keys": func(s *queue.Subscription) {
		s.FairKey, s.FairWeight, s.ConcurrencyKey, s.MaxConcurrent = "", 0, "", 0
	},
	"headers": func(s *queue.Subscription) {
		withHook(s, func(w *queue.Webhook) { w.Headers, w.SecretHeaders = nil, nil })
	},
	"secrets": func(s *queue.Subscription) { withHook(s, func(w *queue.Webhook) { w.Secrets = nil }) },
	"expect":  func(s *queue.Subscription) { withHook(s, func(w *queue.Webhook) { w.Expect = nil }) },
}

// withHook replaces the webhook, if there is one, by a changed copy.
func withHook(s *queue.Subscription, change func(w *queue.Webhook)) {
	if s.Webhook != nil {
		hook := *s.Webhook
		change(&hook)
		s.Webhook = &hook
	}
}

func (o *subscriptionFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.s.Topic, "topic", "", "the topic, or a pattern with one * for any text, such as orders.*")
	f.StringVar(&o.s.Queue, "queue", "", "the queue of the handler; that of a webhook is always webhook.ID")
	option.Pairs(f, &o.s.Filter.Attributes, "attribute",
		"only publications with this attribute, `NAME=PATTERN` with at most one * for any text; may be given several times")
	f.StringArrayVar(&o.data, "data", nil, "only publications whose JSON payload has this value, `POINTER=JSON`, such as /customer/country='\"DE\"'; may be given several times")
	f.StringVar(&o.hook.URL, "url", "", "deliver to this `URL` by a webhook, instead of a handler")
	option.Choice(f, &o.hook.Method, "method", "of the webhook: POST (default), PUT or PATCH", "POST", "PUT", "PATCH")
	option.Pairs(f, &o.hook.Headers, "header", "a header of the webhook, `NAME=VALUE`; may be given several times")
	option.Pairs(f, &o.hook.SecretHeaders, "secret-header",
		"a header of the webhook whose value is a secret of the hosts, `NAME=SECRET`; may be given several times")
	option.Choice(f, &o.hook.Body, "body", "of the webhook: the payload as it was published (default), or a cloudevent",
		queue.WebhookPayload, queue.WebhookCloudEvent)
	f.StringArrayVar(&o.hook.Secrets, "secret", nil, "`NAME` of a secret of the hosts that signs the webhook's requests by Standard Webhooks; several while a secret is changed")
	f.IntSliceVar(&o.expect, "expect", nil, "statuses of the webhook that mean success, `N,N` (default 200 to 299)")
	f.BoolVar(&o.hook.Final, "final", false, "a status of 4xx, except 408, 410 and 429, fails the delivery for good (default: it is tried again)")
	option.Lasting(f, &o.s.Timeout, "timeout", "longest time of one attempt (default the manifest's; of a webhook "+
		queue.DefaultWebhookTimeout.String()+")")
	retryFlags(f, &o.s.Retry, &o.noJitter)
	f.IntVar(&o.priority, "priority", queue.DefaultPriority, "of the tasks, 0 to 100; higher ones of the queue run first")
	keyFlags(f, &o.keys)
	f.StringVar(&o.s.Dead, "dead", "", "`QUEUE` of the dead letters of tasks that fail for good (default what the manifest names)")
}

// apply changes a subscription according to the flags that were given.
func (o *subscriptionFlags) apply(f *pflag.FlagSet, s *queue.Subscription) error {
	if err := refuseEmpty(f, "fair-key", "concurrency-key"); err != nil {
		return err
	}
	for _, name := range o.clear {
		change, ok := clearable[name]
		if !ok {
			return cli.Usagef("--clear %s: %s", name, spelling.DidYouMean(name, slices.Sorted(maps.Keys(clearable))))
		}
		change(s)
	}
	if f.Changed("url") && s.Webhook == nil {
		s.Webhook = &queue.Webhook{}
		if !f.Changed("queue") {
			s.Queue = ""
		}
	}
	set := map[string]func() error{
		"topic":           func() error { s.Topic = o.s.Topic; return nil },
		"queue":           func() error { s.Queue = o.s.Queue; return nil },
		"attribute":       func() error { s.Filter.Attributes = o.s.Filter.Attributes; return nil },
		"data":            func() (err error) { s.Filter.Data, err = pointers(o.data); return err },
		"max-attempts":    func() error { s.Retry.MaxAttempts = o.s.Retry.MaxAttempts; return nil },
		"backoff":         func() error { s.Retry.Backoff = o.s.Retry.Backoff; return nil },
		"backoff-base":    func() error { s.Retry.Base = o.s.Retry.Base; return nil },
		"backoff-min":     func() error { s.Retry.Min = o.s.Retry.Min; return nil },
		"backoff-max":     func() error { s.Retry.Max = o.s.Retry.Max; return nil },
		"no-jitter":       func() error { s.Retry.Jitter = new(!o.noJitter); return nil },
		"max-age":         func() error { s.Retry.MaxAge = o.s.Retry.MaxAge; return nil },
		"max-reschedules": func() error { s.Retry.MaxReschedules = o.s.Retry.MaxReschedules; return nil },
		"priority":        func() error { s.Priority = &o.priority; return nil },
		"dead":            func() error { s.Dead = o.s.Dead; return nil },
		"fair-key":        func() error { s.FairKey = o.keys.FairKey; return nil },
		"fair-weight":     func() error { s.FairWeight = o.keys.FairWeight; return nil },
		"concurrency-key": func() error { s.ConcurrencyKey = o.keys.ConcurrencyKey; return nil },
		"max-concurrent":  func() error { s.MaxConcurrent = o.keys.MaxConcurrent; return nil },
	}
	hook := map[string]func(w *queue.Webhook){
		"url":           func(w *queue.Webhook) { w.URL = o.hook.URL },
		"method":        func(w *queue.Webhook) { w.Method = o.hook.Method },
		"header":        func(w *queue.Webhook) { w.Headers = o.hook.Headers },
		"secret-header": func(w *queue.Webhook) { w.SecretHeaders = o.hook.SecretHeaders },
		"body":          func(w *queue.Webhook) { w.Body = o.hook.Body },
		"secret":        func(w *queue.Webhook) { w.Secrets = o.hook.Secrets },
		"expect":        func(w *queue.Webhook) { w.Expect = o.expect },
		"final":         func(w *queue.Webhook) { w.Final = o.hook.Final },
	}
	var err error
	f.Visit(func(flag *pflag.Flag) {
		set, hook := set[flag.Name], hook[flag.Name]
		switch {
		case set != nil:
			err = errors.Join(err, set())
		case hook != nil && s.Webhook == nil:
			err = errors.Join(err, cli.Usagef("--%s without --url: it is for webhooks, leave it out", flag.Name))
		case hook != nil:
			withHook(s, hook)
		case flag.Name == "timeout" && s.Webhook != nil:
			withHook(s, func(w *queue.Webhook) { w.Timeout = o.s.Timeout })
		case flag.Name == "timeout":
			s.Timeout = o.s.Timeout
		}
	})
	return err
}

// pointers reads texts of the form POINTER=JSON, and returns the JSON values by their JSON pointers.
func pointers(texts []string) (map[string]any, error) {
	data := make(map[string]any, len(texts))
	for _, text := range texts {
		pointer, value, ok := strings.Cut(text, "=")
		decoder := json.NewDecoder(strings.NewReader(value))
		decoder.UseNumber()
		var parsed any
		if !ok || decoder.Decode(&parsed) != nil || decoder.More() {
			return nil, cli.Usagef("--data %q: write POINTER=JSON, such as /total=12 or /customer/country='\"DE\"'; a text stands in double quotes", text)
		}
		data[pointer] = parsed
	}
	return data, nil
}

func newSubscriptionCreate(env cli.Environment) *cobra.Command {
	var o subscriptionFlags
	cmd := &cobra.Command{
		Use:   "create SUBSCRIPTION",
		Short: "Subscribe a queue or a webhook to a topic",
		Long: "Subscribes to a topic: from now on each publication that matches makes one task, in the queue of a handler, or\n" +
			"as the delivery of a webhook, which needs no code. A publication matches if all attributes and data that are\n" +
			"named are so; what is not named may be anything.\n\n" +
			"The flags about retries, timeout, priority, keys and dead letters are those of the tasks. A key attributes.NAME\n" +
			"stands for the attribute of each publication: with --concurrency-key attributes.customer, those of one customer\n" +
			"are handled one after another.",
		Example: "  quern subscription create index --topic 'orders.*' --queue index --max-attempts 5 --dead index.dead\n" +
			"  quern subscription create german --topic orders --queue mail --attribute tenant=acme --data '/customer/country=\"DE\"'\n" +
			"  quern subscription create partner --topic orders --url https://partner.example/hook --secret webhook.partner",
		Args: cli.Arguments(1, 1),
	}
	o.add(cmd.Flags())
	var s queue.Subscription
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		s.ID = args[0]
		if err := o.apply(cmd.Flags(), &s); err != nil {
			return err
		}
		switch {
		case s.Topic == "":
			return cli.Usagef("subscription %q: it needs --topic", s.ID)
		case s.Queue == "" && s.Webhook == nil:
			return cli.Usagef("subscription %q: it needs --queue or --url", s.ID)
		}
		return nil
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		made, err := client.Subscribe(cmd.Context(), s)
		if errors.Is(err, queue.ErrExists) {
			return cli.Refusedf("subscription %q exists: see `quern subscription show %s`, or change it by `quern subscription update %s`", s.ID, cli.ShellWord(s.ID), cli.ShellWord(s.ID))
		}
		if err != nil {
			return err
		}
		if made.Webhook == nil {
			warnUnserved(cmd, client, made.Queue, "")
		}
		noteSecrets(cmd, env, client, made.Webhook)
		if doctor.Unsigned(made.Webhook) {
			cli.Note(cmd, "the webhook %s has no secret: its server cannot tell its deliveries from forged ones: run `quern subscription update %s --secret %s`, and put the secret on the hosts (`quern help topics`)",
				made.ID, cli.ShellWord(made.ID), cli.ShellWord(queue.WebhookSecrets+made.ID))
		}
		return show.Line(cmd, json, made, made.ID)
	})
}

// noteSecrets says which secrets of a webhook hosts lack, and where they look for them.
func noteSecrets(cmd *cobra.Command, env cli.Environment, client admin.Tenant, w *queue.Webhook) {
	if w == nil || len(w.Secrets)+len(w.SecretHeaders) == 0 {
		return
	}
	names := append(slices.Clone(w.Secrets), slices.Sorted(maps.Values(w.SecretHeaders))...)
	lack := "every host needs"
	switch missing, hosts, of := missingSecrets(cmd.Context(), client, names); {
	case len(hosts) == of && of > 0:
		names, lack = missing, "no host has"
	case len(hosts) > 0:
		names, lack = missing, strings.Join(hosts, ", ")+" lacks"
	case of > 0:
		return
	}
	dir := connect.DevSecrets(cmd, env)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, client.Tenant(), name)); dir == "" || err != nil {
			cli.Note(cmd, "%s the secret %s: %s", lack, name, webhook.PutSecret(client.Tenant(), dir, name))
		}
	}
}

const (
	// secretsWait is how long missingSecrets waits for hosts to find a new subscription or a new secret, and
	// secretsInterval the interval at which it looks.
	secretsWait     = 4 * time.Second
	secretsInterval = 200 * time.Millisecond
)

// missingSecrets returns those of the names that a host lacks, the hosts that lack one, and the number of hosts that
// publish which secrets they have.
func missingSecrets(ctx context.Context, client admin.Tenant, names []string) (missing, hosts []string, of int) {
	for begun := time.Now(); ; {
		missing, hosts, of = nil, nil, 0
		nodes, err := client.Nodes(ctx)
		serving := false
		for _, node := range nodes {
			serving = serving || node.Alive && node.Kind == listen.KindQuern
			if !node.Alive || node.Secrets == nil {
				continue
			}
			of++
			lacks := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				return slices.Contains(node.Secrets, name)
			})
			if len(lacks) > 0 {
				missing, hosts = append(missing, lacks...), append(hosts, cmp.Or(node.Name, node.Listener))
			}
		}
		slices.Sort(missing)
		missing = slices.Compact(missing)
		if of > 0 && len(missing) == 0 {
			return nil, nil, of
		}
		if err != nil || !serving || time.Since(begun) > secretsWait || !periodic.Sleep(ctx, secretsInterval) {
			return missing, hosts, of
		}
	}
}

func newSubscriptionUpdate(env cli.Environment) *cobra.Command {
	var o subscriptionFlags
	cmd := &cobra.Command{
		Use: "update SUBSCRIPTION", Short: "Change what the flags name of a subscription",
		Long: "Changes what the flags name, and leaves the rest. A flag that may be given several times replaces all that\n" +
			"there were; --clear takes away filter, retry, timeout, priority, dead, headers, secrets or expect. Tasks that\n" +
			"wait already stay as they are.",
		Args: cli.Arguments(1, 1),
	}
	o.add(cmd.Flags())
	option.List(cmd.Flags(), &o.clear, "clear", nil, "take these away: `NAME,NAME`")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		s, err := client.ChangeSubscription(cmd.Context(), args[0],
			func(s *queue.Subscription) error { return o.apply(cmd.Flags(), s) })
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("secret") || cmd.Flags().Changed("secret-header") {
			noteSecrets(cmd, env, client, s.Webhook)
		}
		return show.Line(cmd, json, s, s.ID)
	})
}

func newSubscriptionLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's subscriptions",
		Args: cli.Arguments(0, 0),
	}
	topic := cmd.Flags().String("topic", "", "only those of this topic")
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		all, err := client.Subscriptions(cmd.Context())
		if all == nil {
			return err // otherwise list the ones that are not damaged
		}
		all = slices.DeleteFunc(all, func(s queue.Subscription) bool { return *topic != "" && !s.OfTopic(*topic) })
		return cmp.Or(list(cmd, client, json, all, subscriptionHeading, show.Rows(all, subscriptionView)), err)
	})
}

func newSubscriptionShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show SUBSCRIPTION", Short: "Show a subscription", Args: cli.Arguments(1, 1)}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		s, err := client.Subscription(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return show.Print(cmd, json, s, subscriptionLines(&s))
	})
}

func newSubscriptionPause(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause SUBSCRIPTION", Short: "Give a subscription no more tasks; those that wait go on",
		Args: cli.Arguments(1, 1),
		Long: "What is published while a subscription is paused makes no task for it. To stop the tasks and lose none, pause\n" +
			"its queue instead: `quern queue pause QUEUE`.",
	}
	reason := cmd.Flags().String("reason", "", "why, for others")
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return activate(cmd, client, args[0], false, *reason)
	})
}

func newSubscriptionResume(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "resume SUBSCRIPTION", Short: "End the pause of a subscription", Args: cli.Arguments(1, 1)}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return activate(cmd, client, args[0], true, "")
	})
}

func activate(cmd *cobra.Command, client admin.Tenant, id string, active bool, reason string) error {
	_, err := client.ChangeSubscription(cmd.Context(), id, func(s *queue.Subscription) error {
		s.Active, s.Reason = active, reason
		return nil
	})
	return err
}

func newSubscriptionDelete(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete SUBSCRIPTION...", Short: "Delete subscriptions; their tasks stay",
		Args: cli.Arguments(1, 1000),
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		errs := &idErrors{cmd: cmd}
		errs.each(args, func(id string) error { return client.Unsubscribe(cmd.Context(), id) })
		return errs.last
	})
}

func newSubscriptionDeliveries(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deliveries SUBSCRIPTION", Short: "List what was delivered to a webhook, newest first",
		Long: "Lists the deliveries of a webhook with their attempts and what the server answered. They are the tasks of its\n" +
			"queue: `quern task show ID` has all of one, and `quern task retry ID` delivers a failed one again.",
		Args: cli.Arguments(1, 1),
	}
	var status queue.Status
	limit := 100
	option.Choice(cmd.Flags(), &status, "status", "only those of this status", "scheduled", "pending", "started",
		"complete", "failed")
	option.Number(cmd.Flags(), &limit, "limit", "most deliveries to list", 1, 1000, "use 1 to 1000")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		deliveries, err := client.Deliveries(cmd.Context(), args[0], status, limit)
		if err != nil {
			return err
		}
		return list(cmd, client, json, deliveries, "ID STATUS ATTEMPTS ANSWER CREATED ERROR",
			show.Rows(deliveries, func(d *admin.Delivery) show.View {
				return show.Row(d.ID, d.Status, d.Attempts, show.Given(d.Answer), moment(d.Created), d.Error)
			}))
	})
}

func newSubscriptionReplay(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay SUBSCRIPTION --since TIME", Short: "Deliver again what was published since a time, and print the IDs of the tasks",
		Long: "Delivers to one subscription, again or for the first time, what matches it of all publications since a time, the\n" +
			"oldest first. --since takes a time, or a duration before now.",
		Args: cli.Arguments(1, 1),
	}
	since := ""
	cmd.Flags().StringVar(&since, "since", "", "`TIME` such as 2026-01-31T12:00:00Z, or how long ago, such as 2h")
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		from, err := time.Parse(time.RFC3339, since)
		if ago, failed := units.ParseDuration(since); failed == nil && ago > 0 {
			from, err = now.Add(-ago), nil
		}
		if err != nil {
			return cli.Usagef("--since %q: use a time like 2026-01-31T12:00:00Z, or how long ago, such as 2h", since)
		}
		done, err := client.Replay(cmd.Context(), args[0], from, false)
		for _, task := range done.Tasks {
			fmt.Fprintln(cmd.OutOrStdout(), task)
		}
		if !done.Until.IsZero() {
			cli.Note(cmd, "there are more: go on with `quern subscription replay %s --since %s`", cli.ShellWord(args[0]),
				done.Until.UTC().Format(time.RFC3339Nano))
		}
		return err
	})
}
