package tenant

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// topicView returns a topic as people see it.
func topicView(t *admin.Topic) show.View {
	return show.Lines(
		"tenant", t.Tenant, "topic", t.Topic, "subscriptions", t.Subscriptions, "active", t.Active,
		"published", t.Published, "dropped", t.Dropped, "tasks", t.Tasks, "kept", t.Kept,
		"last published", moment(t.LastPublished),
	)
}

const topicHeading = "TENANT TOPIC SUBSCRIPTIONS ACTIVE PUBLISHED DROPPED TASKS KEPT LAST-PUBLISHED"

func newTopicLs(env cli.Environment) *cobra.Command {
	return watchable(env, &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's topics", Args: cli.Arguments(0, 0),
		Long: "Lists topics: first those with publications, the last one published to first, then those that subscriptions\n" +
			"name. Dropped counts publications that nobody had subscribed to, kept those that `quern publication` shows.",
	}, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		topics, err := client.Topics(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, json, topics, topicHeading, show.Rows(topics, topicView))
	})
}

func newTopicShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show TOPIC", Short: "Show a topic and its subscriptions", Args: cli.Arguments(1, 1)}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		topic, err := client.Topic(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		views := make([]show.View, len(topic.List))
		for i := range topic.List {
			s, err := topic.List[i].Subscription()
			if err != nil && !json {
				return err
			}
			views[i] = subscriptionView(&s)
		}
		return printWith(cmd, json, topic, topicView(&topic), subscriptionHeading, views)
	})
}

// printWith prints value as JSON. For people it prints v, the view of value, and a table with the rows that belong to
// it.
func printWith(cmd *cobra.Command, json bool, value any, v show.View, heading string, rows []show.View) error {
	if err := show.Print(cmd, json, value, v); err != nil || json || len(rows) == 0 {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return show.Table(cmd, false, rows, heading, rows)
}

func newTopicPublish(env cli.Environment) *cobra.Command {
	var o queue.PublishOptions
	cmd := &cobra.Command{
		Use:   "publish TOPIC [PAYLOAD|-]",
		Short: "Publish to a topic: a task for each subscriber; print the publication's ID",
		Long: "Publishes to a topic and prints the ID of the publication. Each active subscription that matches gets one\n" +
			"task, with PAYLOAD as its parameters; - reads it from stdin. Without a subscriber the publication is kept as\n" +
			"dropped, which is said on stderr. Publishing the same --id again does nothing while the publication is kept.",
		Example: "  quern topic publish orders '{\"total\": 12}' --attribute type=order.made --attribute tenant=acme\n" +
			"  quern topic publish photos - --id upload-7 < photo.jpg",
		Args: cli.Arguments(1, 2),
	}
	f := cmd.Flags()
	f.StringVar(&o.ID, "id", "", "ID of the publication (default a new UUID); if it is kept, nothing is published")
	option.Pairs(f, &o.Attributes, "attribute", "a CloudEvents attribute, `NAME=VALUE`, for filters and handlers; up to 24 times")
	f.StringVar(&o.Parent, "parent", "", "`ID` of the task that this comes from")
	f.StringVar(&o.Traceparent, "traceparent", "", "its trace, as in the HTTP header of that name")
	option.Count(f, new(int), "replicas", "how many of Redis's replicas must have it (default none)")
	cmd.PreRunE = func(*cobra.Command, []string) error { return refuseEmpty(f, "id") }
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		payload, err := cli.ReadParameters(args[1:], cmd, cli.MaxParameters)
		if err != nil {
			return err
		}
		published, err := client.Publish(cmd.Context(), args[0], payload, o)
		switch {
		case errors.Is(err, manage.ErrPaused):
			return cli.Refusedf("nothing is published: %w: wait, or end the pause: see `quern tenant pauses`", err)
		case errors.Is(err, manage.ErrQuota):
			return fmt.Errorf("nothing is published: %w", err)
		case errors.Is(err, queue.ErrQueueFull):
			return cli.Refusedf("%v: nothing is published; wait until it is shorter, raise its limit with `quern queue limit QUEUE N`, or pause the subscription", err)
		case queue.IsUnavailable(err):
			return fmt.Errorf("%w: it may be published all the same: repeat it with --id %s, which publishes it once", err,
				published.ID)
		case err != nil:
			return err
		}
		switch {
		case published.Taken:
			cli.Note(cmd, "publication %s exists with another payload or other attributes, so nothing was published: choose another --id", published.ID)
		case published.Existed:
			cli.Note(cmd, "publication %s exists, nothing was published", published.ID)
		case published.Subscribers == 0:
			cli.Note(cmd, "no subscription matches, the publication is dropped: see `quern topic show %s`",
				cli.ShellWord(args[0]))
		}
		if published.Damaged > 0 {
			cli.Note(cmd, "%d subscriptions cannot be read, and got no task: see `quern doctor`", published.Damaged)
		}
		v := show.Object(
			"id", published.ID, "tenant", client.Tenant(), "topic", args[0], "existed", published.Existed,
			"subscribers", published.Subscribers, "damaged", show.Given(published.Damaged),
		)
		return show.Line(cmd, json, v, published.ID)
	})
}

// publicationView returns a publication as people see it.
func publicationView(p *admin.Publication) show.View {
	return show.Lines(
		"id", p.ID, "topic", p.Topic, "state", p.State, "created", moment(p.Created),
		"subscribers", p.Subscribers, "tasks", p.Tasks,
	)
}

const publicationHeading = "ID TOPIC STATE CREATED SUBSCRIBERS TASKS"

func newPublicationLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls TOPIC", Aliases: []string{"list"},
		Short: "List the publications of a topic that are kept, newest first", Args: cli.Arguments(1, 1),
	}
	limit, offset := int64(100), int64(0)
	option.Number(cmd.Flags(), &limit, "limit", "most publications to list", 1, 1000, "use 1 to 1000")
	option.Number(cmd.Flags(), &offset, "offset", "how many to skip, from the newest", 0, 1<<31, "use 0 or more")
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		all, err := client.Publications(cmd.Context(), args[0], offset, limit)
		if err != nil {
			return err
		}
		return list(cmd, client, json, all, publicationHeading, show.Rows(all, publicationView))
	})
}

func newPublicationShow(env cli.Environment) *cobra.Command {
	return watchable(env, &cobra.Command{
		Use: "show PUBLICATION", Short: "Show a publication, its tasks, and how many of them stand where",
		Args: cli.Arguments(1, 1),
		Long: "Shows a publication and what became of the task of each subscriber. A task is gone if it was purged or\n" +
			"deleted, or if its subscription was deleted before the task came into being.",
	}, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		p, err := client.Publication(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		v := append(publicationView(&p), show.Lines(
			"attributes", show.Pairs(p.Attributes), "parent", p.Parent, "traceparent", p.Traceparent,
		)...)
		v = append(v, bytesView("payload", p.Payload, p.PayloadBase64)...)
		var summary show.View
		for _, status := range []string{"scheduled", "pending", "reserved", "started", "complete", "failed", "gone"} {
			summary = append(summary, show.Field{"", status, show.Given(p.Summary[status])})
		}
		v = append(v, show.Field{"", "summary", summary})
		return printWith(cmd, json, p, v, "SUBSCRIPTION TASK QUEUE STATUS REASON",
			show.Rows(p.List, func(t *admin.PublishedTask) show.View {
				return show.Row(t.Subscription, t.ID, show.Given(t.Queue), t.Status, show.Given(t.Reason))
			}))
	})
}
