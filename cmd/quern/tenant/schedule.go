package tenant

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// maxScheduleFile is the maximum size of the file of `schedule sync` in bytes.
const maxScheduleFile = 8 << 20

// ticksOf returns the next ticks of a schedule in its time zone, at most limit of them.
func ticksOf(s *admin.Schedule, limit int) string {
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		zone = time.UTC
	}
	var words []string
	for _, tick := range s.NextTicks[:min(limit, len(s.NextTicks))] {
		words = append(words, admin.Moment(tick).In(zone).Format("Mon 2006-01-02 15:04:05 MST"))
	}
	return strings.Join(words, ", ")
}

// scheduleView returns a schedule as `schedule show` prints it for people.
func scheduleView(s *admin.Schedule) show.View {
	var priority any
	if s.Priority != nil {
		priority = *s.Priority
	}
	return append(show.Lines(
		"schedule", s.ID, "queue", s.Queue, "cron", s.Cron, "timezone", s.Timezone, "owner", s.Owner,
		"paused", moment(s.Paused), "error", show.Given(s.Error), "next", ticksOf(s, len(s.NextTicks)), "last",
		moment(s.Last),
		"last task", s.LastID, "fired", s.Fired, "skipped", s.Skipped, "missed ticks", s.MissedTicks,
		"missed", s.Missed, "max missed", show.Given(s.MaxMissed),
		"window", show.Given(show.Span(admin.Period(s.WindowSeconds))), "overlap", s.Overlap, "priority", priority,
		"timeout", show.Given(show.Span(admin.Period(s.TimeoutSeconds))), "max attempts", attemptsWord(s.MaxAttempts),
		"", retryView(s.Policy()), "fair key", show.Given(s.FairKey), "fair weight", show.Given(s.FairWeight), "concurrency key",
		show.Given(s.ConcurrencyKey), "max concurrent", show.Given(s.MaxConcurrent), "labels", show.Pairs(s.Labels), "created", moment(s.Created),
		"updated", moment(s.Updated), "plugin absent since", moment(s.Absent),
	), bytesView("parameters", s.Parameters, s.ParametersBase64)...)
}

const scheduleHeading = "SCHEDULE QUEUE CRON TIMEZONE OWNER PAUSED NEXT LAST FIRED SKIPPED MISSED-TICKS"

func newScheduleLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's schedules with their next ticks",
		Args: cli.Arguments(0, 0),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		all, err := client.Schedules(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, json, all, scheduleHeading, show.Rows(all, func(s *admin.Schedule) show.View {
			when := ticksOf(s, 1)
			switch {
			case s.Error != "":
				when = s.Error
			case s.Absent > 0:
				when = "none: no manifest of a live host has it"
			}
			return show.Row(s.ID, s.Queue, s.Cron, s.Timezone, s.Owner, s.Paused > 0, when, moment(s.Last), s.Fired, s.Skipped,
				s.MissedTicks)
		}))
	})
}

func newScheduleShow(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show SCHEDULE", Short: "Show a schedule and its next ticks", Args: cli.Arguments(1, 1)}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		return showSchedule(cmd, client, args[0], json)
	})
}

func showSchedule(cmd *cobra.Command, client admin.Tenant, id string, json bool) error {
	s, err := client.Schedule(cmd.Context(), id)
	if err != nil {
		return err
	}
	return show.Print(cmd, json, s, scheduleView(&s))
}

func newScheduleCreate(env cli.Environment) *cobra.Command {
	s, parameters := queue.Schedule{
		Options: queue.Options{Priority: new(int)}, Missed: queue.MissedOne,
		Overlap: queue.OverlapAllow,
	}, ""
	cmd := &cobra.Command{
		Use: "create SCHEDULE --queue QUEUE --cron EXPRESSION", Short: "Make a schedule, or change the one of that name",
		Long: "Makes a schedule: at each tick of its cron expression one task is enqueued, however many hosts there are. A\n" +
			"schedule of that name is changed within a second. The task of a tick has the ID SCHEDULE@SECOND and the\n" +
			"schedule as its key.\n\n" +
			"An expression has minute, hour, day of the month, month and day of the week, or six fields with the seconds\n" +
			"first; or is @hourly, @daily, @weekly, @monthly, @yearly, or @every and a duration. L is the last day of a\n" +
			"month, 15W the weekday nearest to the 15th, MON#1 the first Monday. Where clocks are set, a schedule that\n" +
			"names hours has its tick once a day; one whose hour is * goes on without regard to the clock.",
		Example: "  quern schedule create nightly --queue reports --cron '30 6 * * MON-FRI' --timezone Europe/Berlin\n" +
			"  quern schedule create poll --queue fetch --cron '@every 90s' --overlap skip --parameters '{\"page\": 1}'",
		Args: cli.Arguments(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&s.Queue, "queue", "", "`QUEUE` that gets the tasks")
	f.StringVar(&s.Cron, "cron", "", "cron `EXPRESSION`, such as '30 6 * * *', @daily or '@every 90s'")
	f.StringVar(&s.Timezone, "timezone", "", "by whose clock, such as Europe/Berlin (default UTC)")
	f.StringVar(&parameters, "parameters", "", "`PARAMETERS` of each task; - reads stdin")
	option.Choice(f, &s.Missed, "missed", "which ticks are fired that came while no host ran: skip (none), one (the last) or all (the last --max-missed)", "skip", "one", "all")
	option.Count(f, &s.MaxMissed, "max-missed", "with --missed all: how many at most (default 100)")
	option.Lasting(f, &s.Window, "window", "fire no tick that was missed longer ago")
	option.Choice(f, &s.Overlap, "overlap", "what becomes of a tick before the task of the last one has finished: skip, queue (it waits, and of several those that --missed names) or allow", "skip", "queue", "allow")
	f.IntVar(s.Options.Priority, "priority", queue.DefaultPriority, "0 to 100; higher ones of the queue run first")
	option.Lasting(f, &s.Options.Timeout, "timeout", "longest time of one attempt")
	option.Attempts(f, &s.Options.Retry.MaxAttempts, "number of attempts, or unlimited")
	option.Lasting(f, &s.Options.Retry.MaxAge, "max-age", "begin no attempt later than this after the tick")
	keyFlags(f, &s.Options)
	option.Pairs(f, &s.Options.Labels, "label", "a label of each task, `NAME=VALUE`; up to 16 times")
	cli.NotSettings(f, "max-attempts")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		s.ID = args[0]
		if s.Queue == "" || s.Cron == "" {
			return cli.Usagef("schedule %s: give --queue QUEUE and --cron EXPRESSION, such as --cron '30 6 * * *'",
				show.Shorten(s.ID, 100, "…"))
		}
		if err := checkKeys(cmd.Flags()); err != nil {
			return err
		}
		if *s.Options.Priority == queue.DefaultPriority {
			s.Options.Priority = nil
		}
		if _, err := cron.Parse(s.Cron, s.Timezone); err != nil {
			return cli.WrongUsage(err)
		}
		if parameters != "" {
			s.Parameters, err = cli.ReadParameters([]string{parameters}, cmd, cli.MaxParameters)
		}
		return err
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		put, err := client.PutSchedule(cmd.Context(), s, false)
		if err != nil {
			return err
		}
		if json {
			return showSchedule(cmd, client, s.ID, true)
		}
		stored, err := client.Schedule(cmd.Context(), s.ID)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s: %s", s.ID, put)
		if next := ticksOf(&stored, 1); next != "" {
			line += ", next " + next
		}
		if err := show.Line(cmd, false, nil, line); err != nil {
			return err
		}
		warnUnserved(cmd, client, s.Queue, "")
		return nil
	})
}

// newScheduleAct makes a command that calls do with the ID of a schedule.
func newScheduleAct(env cli.Environment, use, short string,
	do func(client admin.Tenant, ctx context.Context, id string) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use + " SCHEDULE", Short: short, Args: cli.Arguments(1, 1)}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return do(client, cmd.Context(), args[0])
	})
}

func newSchedulePause(env cli.Environment) *cobra.Command {
	return newScheduleAct(env, "pause", "Let no tick of a schedule fire",
		func(client admin.Tenant, ctx context.Context, id string) error {
			return client.Pauses().PauseSchedule(ctx, id)
		})
}

func newScheduleResume(env cli.Environment) *cobra.Command {
	return newScheduleAct(env, "resume", "End a pause; its ticks never come",
		func(client admin.Tenant, ctx context.Context, id string) error {
			return client.Pauses().ResumeSchedule(ctx, id)
		})
}

func newScheduleDelete(env cli.Environment) *cobra.Command {
	return newScheduleAct(env, "delete", "Delete a schedule; its tasks stay",
		func(client admin.Tenant, ctx context.Context, id string) error {
			s, err := client.Schedule(ctx, id)
			if err != nil {
				return err
			}
			if plugin := (&queue.Schedule{Owner: s.Owner}).PluginOwner(); plugin != "" && s.Absent == 0 {
				return cli.Refusedf("schedule %s belongs to the plugin %s, whose hosts would make it again: pause it with `quern schedule pause %s`, or take it out of the manifest", id, plugin, id)
			}
			return client.DeleteSchedule(ctx, id, s.Owner)
		})
}

func newScheduleRun(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run SCHEDULE", Short: "Enqueue a task of a schedule now, and print its ID",
		Args: cli.Arguments(1, 1),
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		id, err := client.RunSchedule(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return show.Line(cmd, json, show.Object("id", id, "tenant", client.Tenant(), "schedule", args[0]), id)
	})
}

func newScheduleSync(env cli.Environment) *cobra.Command {
	owner, dry := "file", false
	cmd := &cobra.Command{
		Use: "sync FILE", Short: "Make the schedules of a YAML file the only ones of their owner",
		Long: "Stores the schedules of a YAML file, and deletes the others of the same --owner, so that the file is the whole\n" +
			"list. Schedules that were made by hand, or that plugins have in their manifests, are not touched. The file has\n" +
			"the list schedules; each entry has a name, a queue, a cron expression, and what else a manifest's schedule has.\n" +
			"A file with a mistake changes nothing. - reads stdin.",
		Args: cli.Arguments(1, 1),
	}
	cmd.Flags().StringVar(&owner, "owner", owner, "whose schedules these are: one name for each file")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would change")
	var all []queue.Schedule
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if all, err = readSchedules(cmd, args[0]); err != nil {
			return err
		}
		if err := manifest.CheckWord(owner); err != nil || owner == queue.ScheduleByHand {
			return cli.Usagef("--owner %q: use a word other than %s", owner, queue.ScheduleByHand)
		}
		return nil
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		sync, err := client.SyncSchedules(cmd.Context(), owner, all, dry)
		if err != nil {
			return err
		}
		warnUnservedSchedules(cmd, client, all, append(sync.New, sync.Changed...))
		var rows []show.View
		add := func(ids []string, end string) {
			for _, id := range ids {
				rows = append(rows, show.View{{"id", "schedule", id}, {"end", "end", end}})
			}
		}
		add(sync.New, "new")
		add(sync.Changed, "changed")
		add(sync.Same, "same")
		add(sync.Deleted, "deleted")
		return show.Table(cmd, json, rows, "SCHEDULE END", rows)
	})
}

// maxWarned is the maximum number of queues of a file that are checked.
const maxWarned = 20

// warnUnservedSchedules warns of queues that no host serves. It checks the queues of those schedules in all whose ID is
// in ids.
func warnUnservedSchedules(cmd *cobra.Command, client admin.Tenant, all []queue.Schedule, ids []string) {
	var names []string
	for _, s := range all {
		if slices.Contains(ids, s.ID) && !slices.Contains(names, s.Queue) && len(names) < maxWarned {
			names = append(names, s.Queue)
			warnUnserved(cmd, client, s.Queue, "")
		}
	}
}

// readSchedules reads the file of `schedule sync`.
func readSchedules(cmd *cobra.Command, path string) ([]queue.Schedule, error) {
	in, name := cmd.InOrStdin(), "stdin"
	if path != "-" {
		file, err := os.Open(filepath.Clean(path))
		if err != nil {
			return nil, cli.Usagef("%w: name a YAML file that this user may read", err)
		}
		defer file.Close()
		in, name = file, path
	}
	data, err := io.ReadAll(io.LimitReader(in, maxScheduleFile+1))
	if err != nil {
		return nil, cli.Usagef("%w: name a YAML file, or - for stdin", err)
	}
	declared, err := manifest.ParseSchedules(name, data)
	if err != nil {
		return nil, cli.WrongUsage(err)
	}
	all := make([]queue.Schedule, len(declared))
	for i, s := range declared {
		all[i] = upkeep.ScheduleOf(s)
	}
	return all, nil
}
