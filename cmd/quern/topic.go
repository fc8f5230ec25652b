package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// topicView is a topic as `topic ls` and `topic show` print it.
func topicView(tenant string, t queue.Topic) view {
	return view{
		{"tenant", "tenant", tenant},
		{"topic", "topic", t.Name},
		{"subscriptions", "subscriptions", t.Subscriptions},
		{"active", "active", t.Active},
		{"published", "published", t.Published},
		{"dropped", "dropped", t.Dropped},
		{"tasks", "tasks", t.Tasks},
		{"kept", "kept", t.Kept},
		{"last_published", "last published", moment(t.Last)},
	}
}

const topicHeading = "TENANT TOPIC SUBSCRIPTIONS ACTIVE PUBLISHED DROPPED TASKS KEPT LAST-PUBLISHED"

func newTopicLs(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's topics", Args: arguments(0, 0),
		Long: "Lists topics: first those with publications, the last one published to first, then those that subscriptions\n" +
			"name. Dropped counts publications that nobody had subscribed to, kept those that `quern publication` shows.",
	}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, watchable(cmd, func(cmd *cobra.Command, client backend, _ []string, json bool) error {
		topics, err := client.Topics(cmd.Context())
		if err != nil {
			return err
		}
		views := make([]view, len(topics))
		for i, t := range topics {
			views[i] = topicView(client.Tenant(), t)
		}
		return list(cmd, client, json, views, topicHeading, views)
	}))
	return cmd
}

func newTopicShow(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show TOPIC", Short: "Show a topic and its subscriptions", Args: arguments(1, 1)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, watchable(cmd, func(cmd *cobra.Command, client backend, args []string, json bool) error {
		topic, err := client.Topic(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		all, err := client.Subscriptions(cmd.Context())
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(s queue.Subscription) bool { return !s.OfTopic(args[0]) })
		views := make([]view, len(all))
		for i := range all {
			views[i] = subscriptionView(&all[i])
		}
		v := topicView(client.Tenant(), topic)
		if json {
			return show(cmd, json, append(v, field{"list", "", all}))
		}
		if err := show(cmd, json, v); err != nil || len(views) == 0 {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout())
		return showTable(cmd, json, views, subscriptionHeading, views)
	}))
	return cmd
}

func newTopicPublish(env environment) *cobra.Command {
	var o queue.PublishOptions
	var replicas int
	cmd := &cobra.Command{
		Use:   "publish TOPIC [PAYLOAD|-]",
		Short: "Publish to a topic: a task for each subscriber; print the publication's ID",
		Long: "Publishes to a topic and prints the ID of the publication. Each active subscription that matches gets one\n" +
			"task, with PAYLOAD as its parameters; - reads it from stdin. Without a subscriber the publication is kept as\n" +
			"dropped, which is said on stderr. Publishing the same --id again does nothing while the publication is kept.",
		Example: "  quern topic publish orders '{\"total\": 12}' --attribute type=order.made --attribute tenant=acme\n" +
			"  quern topic publish photos - --id upload-7 < photo.jpg",
		Args: arguments(1, 2),
	}
	f := cmd.Flags()
	f.StringVar(&o.ID, "id", "", "ID of the publication (default a new UUID); if it is kept, nothing is published")
	pairFlag(f, &o.Attributes, "attribute", "a CloudEvents attribute, `NAME=VALUE`, for filters and handlers; up to 24 times")
	f.StringVar(&o.Parent, "parent", "", "`ID` of the task that this comes from")
	f.StringVar(&o.Traceparent, "traceparent", "", "its trace, as in the HTTP header of that name")
	newCount(f, &replicas, "replicas", "how many of Redis's replicas must have it (default none)")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if flag := f.Lookup("id"); flag.Changed && o.ID == "" { // a script's variable may not be set
			return usagef("--id is empty: give it a value, or leave it out")
		}
		client, err := connect(cmd, env, queue.Config{Replicas: replicas})
		if err != nil {
			return err
		}
		defer client.Close()
		payload, err := readParameters(args[1:], cmd, maxParameters)
		if err != nil {
			return err
		}
		published, err := client.Publish(cmd.Context(), args[0], payload, o)
		switch {
		case errors.Is(err, queue.ErrQueueFull):
			return refusedf("%v: nothing is published; wait until it is shorter, raise its limit with `quern queue limit`, or pause the subscription", err)
		case queue.IsUnavailable(err):
			return fmt.Errorf("%w: it may be published all the same: repeat it with --id %s, which publishes it once", err, published.ID)
		case err != nil:
			return err
		}
		switch {
		case published.Existed:
			note(cmd, "publication %s exists, nothing was published", published.ID)
		case published.Subscribers == 0:
			note(cmd, "no subscription matches, the publication is dropped: see `quern topic show %s`", shellWord(args[0]))
		}
		v := view{
			{"id", "", published.ID},
			{"tenant", "", client.Tenant()},
			{"topic", "", args[0]},
			{"existed", "", published.Existed},
			{"subscribers", "", published.Subscribers},
		}
		return showLine(cmd, output.json(), v, published.ID)
	}
	return cmd
}

// publicationView is a publication as `publication ls` and `publication show` print it.
func publicationView(tenant string, p *queue.Publication) view {
	return view{
		{"id", "id", p.ID},
		{"tenant", "", tenant},
		{"topic", "topic", p.Topic},
		{"state", "state", string(p.State)},
		{"created", "created", moment(p.Created)},
		{"subscribers", "subscribers", p.Subscribers},
		{"tasks", "tasks", p.Tasks},
		{"refused", "", given(p.Refused)},
	}
}

const publicationHeading = "ID TOPIC STATE CREATED SUBSCRIBERS TASKS"

func newPublicationLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls TOPIC", Aliases: []string{"list"}, Short: "List the publications of a topic that are kept, newest first", Args: arguments(1, 1)}
	limit, offset := int64(100), int64(0)
	newNumber(cmd.Flags(), &limit, "limit", "most publications to list", 1, 1000, "use 1 to 1000")
	newNumber(cmd.Flags(), &offset, "offset", "how many to skip, from the newest", 0, 1<<31, "use 0 or more")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, watchable(cmd, func(cmd *cobra.Command, client backend, args []string, json bool) error {
		all, err := client.Publications(cmd.Context(), args[0], offset, limit)
		if err != nil {
			return err
		}
		views := make([]view, len(all))
		for i, p := range all {
			views[i] = publicationView(client.Tenant(), p)
		}
		return list(cmd, client, json, views, publicationHeading, views)
	}))
	return cmd
}

func newPublicationShow(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a publication, its tasks, and how many of them stand where", Args: arguments(1, 1),
		Long: "Shows a publication and what became of the task of each subscriber. A task is gone if it was purged or\n" +
			"deleted, or if its subscription was deleted before the task came into being.",
	}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, watchable(cmd, func(cmd *cobra.Command, client backend, args []string, json bool) error {
		p, err := client.Publication(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		tasks, err := client.PublicationTasks(cmd.Context(), p.ID, 0, queue.MaxSubscriptions)
		if err != nil {
			return err
		}
		counts := make(map[string]int)
		views := make([]view, len(tasks))
		for i, t := range tasks {
			status := string(t.Status)
			if t.Queue == "" {
				status = "gone"
			}
			counts[status]++
			views[i] = view{
				{"subscription", "subscription", t.Subscription},
				{"id", "task", t.ID},
				{"queue", "queue", given(t.Queue)},
				{"status", "status", status},
				{"reason", "reason", given(string(t.Reason))},
			}
		}
		var summary view
		for _, status := range []string{"scheduled", "pending", "reserved", "started", "complete", "failed", "gone"} {
			if counts[status] > 0 {
				summary = append(summary, field{status, status, counts[status]})
			}
		}
		v := publicationView(client.Tenant(), p)
		if len(p.Attributes) > 0 {
			v = append(v, field{"attributes", "attributes", pairs(p.Attributes)})
		}
		v = append(v, view{
			{"parent", "parent", given(p.Parent)},
			{"traceparent", "traceparent", given(p.Traceparent)},
		}...)
		v = append(v, bytesView("payload", p.Payload)...)
		if summary != nil {
			v = append(v, field{"summary", "summary", summary})
		}
		if json {
			return show(cmd, json, append(v, field{"list", "", views}))
		}
		if err := show(cmd, json, v); err != nil || len(views) == 0 {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout())
		return showTable(cmd, json, views, "SUBSCRIPTION TASK QUEUE STATUS REASON", views)
	}))
	return cmd
}
