package database

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// connectTimeout bounds a command's connection to the database.
const connectTimeout = 15 * time.Second

// place is the flags that name a database.
type place struct{ url, file string }

func placeFlags(cmd *cobra.Command) *place {
	p := new(place)
	option.Text(cmd.Flags(), &p.url, "URL", "postgres", "`URL` of the database: postgres://USER:PASSWORD@HOST/DATABASE")
	cmd.Flags().StringVar(&p.file, "postgres-file", "", "`FILE` with the URL of the database, for mounted secrets")
	return p
}

// address returns the database that the flags name.
func (p *place) address(cmd *cobra.Command) (*postgres.Address, error) {
	switch {
	case p.url != "" && p.file != "":
		return nil, cli.Usagef("both --postgres and --postgres-file: give one of them")
	case p.file != "":
		text, err := connect.ReadSetting(cli.Origin(cmd.Flag("postgres-file")), p.file, "the URL of a database")
		if err != nil {
			return nil, err
		}
		return parse(cmd, "postgres-file", text)
	case p.url == "":
		return nil, cli.Usagef("no database: give --postgres postgres://USER:PASSWORD@HOST/DATABASE, or --postgres-file FILE")
	}
	return parse(cmd, "postgres", p.url)
}

// parse parses the URL of a flag.
func parse(cmd *cobra.Command, flag, url string) (*postgres.Address, error) {
	address, err := postgres.Parse(url)
	if err != nil {
		return nil, cli.Usagef("%s: %w", cli.Origin(cmd.Flag(flag)), err)
	}
	return address, nil
}

// with makes a command that connects to a database.
func with(cmd *cobra.Command, run func(cmd *cobra.Command, db *postgres.Conn, args []string) error) *cobra.Command {
	p := placeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address, err := p.address(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
		defer cancel()
		db, err := address.Connect(ctx, "quern")
		if err != nil {
			return cli.Refusedf("%w", err)
		}
		defer db.Close()
		if err := run(cmd, db, args); err != nil {
			return cli.Refusedf("%w", err)
		}
		return nil
	}
	return cmd
}

func newSchema() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the SQL that makes Quern's tables, for a database that you change by other means",
		Args: cli.Arguments(0, 0), PersistentPreRunE: cli.WithoutSettings,
	}
	var raquel []string
	raquelFlag(cmd, &raquel)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text := relay.Schema
		for _, table := range raquel {
			text += "\n-- The index with which claims of " + table + " stay fast.\n" + relay.RaquelIndex(table) + ";\n"
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}

// raquelFlag adds the flag of Raquel's tables.
func raquelFlag(cmd *cobra.Command, tables *[]string) {
	tableFlag(cmd, tables, "raquel", "jobs", "tables of Raquel, such as jobs or app.jobs")
}

// nsjFlag adds the flag of queue tables of nsj-queue-lib.
func nsjFlag(cmd *cobra.Command, tables *[]string) {
	tableFlag(cmd, tables, "nsj", "fila", "queue tables of nsj-queue-lib, such as fila or app.fila")
}

// tableFlag adds a flag that lists tables.
func tableFlag(cmd *cobra.Command, tables *[]string, name, example, usage string) {
	option.List(cmd.Flags(), tables, name, nil, usage)
	flag := cmd.Flags().Lookup(name)
	flag.Value = tableList{flag.Value, tables, example}
}

// tableList is the value of a flag that lists tables. It refuses what is no name of a table.
type tableList struct {
	pflag.Value
	tables  *[]string
	example string
}

// Set is part of pflag.Value.
func (l tableList) Set(text string) error {
	if err := l.Value.Set(text); err != nil {
		return err
	}
	if len(*l.tables) == 0 || slices.Contains(*l.tables, "") {
		return fmt.Errorf("it names no table: write one, such as %s", l.example)
	}
	for _, table := range *l.tables {
		if err := relay.ValidTable(table); err != nil {
			return err
		}
	}
	return nil
}

func newInit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "Make Quern's tables in a database; what exists stays",
		Long: "Makes the schema quern with its tables. What exists stays, so the command can be repeated.\n" +
			"--grant gives a role of an application the right to enqueue, --grant-relay the role of the relay its rights, and\n" +
			"--grant-handler the role of a tenant's handlers the right to commit with their task.\n" +
			"If tenants share the database, --for-tenant bounds the roles of --grant to one of them.\n" +
			"--raquel makes the index with which claims of a table of Raquel stay fast, also those of its own workers. This\n" +
			"waits until transactions have ended that use the table now, but blocks nobody. With --nsj, --grant-relay also gives\n" +
			"the rights on queue tables of nsj-queue-lib.",
		Example: "  quern database init --postgres postgres://owner@db/shop --grant shop --grant-relay quern\n" +
			"  quern database init --postgres postgres://owner@db/shop --raquel jobs --grant-relay quern",
		Args: cli.Arguments(0, 0),
	}
	var applications, relays, handlers, raquel, nsj []string
	tenant := cmd.Flags().String("for-tenant", "", "the `TENANT` to which the roles of --grant belong: they insert and read its rows alone (default every tenant's)")
	option.List(cmd.Flags(), &applications, "grant", nil, "roles that may enqueue and read ends")
	option.List(cmd.Flags(), &relays, "grant-relay", nil, "roles with which a relay connects")
	option.List(cmd.Flags(), &handlers, "grant-handler", nil, "roles with which handlers connect: one for each tenant")
	raquelFlag(cmd, &raquel)
	nsjFlag(cmd, &nsj)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case *tenant != "" && len(applications) == 0:
			return cli.Usagef("--for-tenant %s without --grant: name the roles that belong to it", *tenant)
		case *tenant != "" && queue.ValidTenant(*tenant) != nil:
			return cli.Usagef("--for-tenant %q: %s", *tenant, cli.TenantRule)
		case len(nsj) > 0 && len(relays) == 0:
			return cli.Usagef("--nsj %s without --grant-relay: name the roles that get the rights on it", nsj[0])
		}
		return nil
	}
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, _ []string) error {
		if err := relay.Init(cmd.Context(), db); err != nil {
			return err
		}
		for _, table := range raquel {
			if err := relay.InitRaquel(cmd.Context(), db, table); err != nil {
				return err
			}
		}
		for _, role := range applications {
			if err := relay.GrantApplication(cmd.Context(), db, role); err != nil {
				return err
			}
			if *tenant == "" {
				continue
			}
			if err := relay.GrantTenant(cmd.Context(), db, role, *tenant); err != nil {
				return err
			}
		}
		for _, role := range relays {
			if err := relay.GrantRelay(cmd.Context(), db, role); err != nil {
				return err
			}
			for _, table := range raquel {
				if err := relay.GrantRaquel(cmd.Context(), db, table, role); err != nil {
					return err
				}
			}
			for _, table := range nsj {
				if err := relay.GrantNsj(cmd.Context(), db, table, role); err != nil {
					return err
				}
			}
		}
		for _, role := range handlers {
			if err := relay.GrantHandler(cmd.Context(), db, role); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "the tables are there")
		return err
	})
}

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether a relay or handlers can work on a database, and what holds them up", Args: cli.Arguments(0, 0),
	}
	format := option.Output(cmd)
	var raquel, nsj []string
	raquelFlag(cmd, &raquel)
	nsjFlag(cmd, &nsj)
	handlers := cmd.Flags().Bool("handlers", false, "check the role of the URL for handlers, not for a relay")
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, _ []string) error {
		check := func() ([]relay.Finding, error) { return relay.Check(cmd.Context(), db, raquel, nsj) }
		if *handlers {
			check = func() ([]relay.Finding, error) { return relay.CheckHandler(cmd.Context(), db) }
		}
		findings, err := check()
		if err != nil {
			return err
		}
		wrong := 0
		for _, f := range findings {
			if !f.OK {
				wrong++
			}
		}
		err = show.Table(cmd, format.JSON(), findings, "OK CHECK FINDING", show.Rows(findings, func(f *relay.Finding) show.View {
			return show.Row(map[bool]string{true: "✓", false: "✗"}[f.OK], f.Check, f.Text)
		}))
		if err == nil && wrong > 0 {
			err = fmt.Errorf("%d of %d checks failed", wrong, len(findings))
		}
		return err
	})
}

func newLs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List rows that the relay refused, that wait, or that it holds",
		Args: cli.Arguments(0, 0),
	}
	table := "refused"
	option.Choice(cmd.Flags(), &table, "state", "which rows: refused, waiting or held", "refused", "waiting", "held")
	limit := 100
	option.Number(cmd.Flags(), &limit, "limit", "most rows to list, up to 1000", 1, 1000, "use 1 to 1000")
	format := option.Output(cmd)
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, _ []string) error {
		rows, err := relay.Rows(cmd.Context(), db, map[string]string{
			"refused": relay.Refused, "waiting": relay.Waiting, "held": relay.Held,
		}[table], limit)
		if err != nil {
			return err
		}
		return show.Table(cmd, format.JSON(), append([]relay.Row{}, rows...), "SEQ ID TENANT TARGET BYTES CREATED ERROR",
			show.Rows(rows, func(r *relay.Row) show.View {
				return show.Row(r.Seq, r.ID, r.Tenant, r.Queue+r.Topic, r.Bytes, show.Moment(admin.Moment(r.CreatedAt)), r.Error)
			}))
	})
}

func newShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show SEQ", Short: "Show a row of the outbox", Args: cli.Arguments(1, 1), PreRunE: checkNumbers}
	format := option.Output(cmd)
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, args []string) error {
		row, err := relay.Find(cmd.Context(), db, numbers(args)[0])
		if err != nil {
			return err
		}
		return show.Print(cmd, format.JSON(), row, show.Lines("seq", row.Seq, "id", row.ID, "tenant", row.Tenant, "queue", row.Queue,
			"topic", row.Topic, "options", row.Options, "created", show.Moment(admin.Moment(row.CreatedAt)),
			"refused", show.Moment(admin.Moment(row.RefusedAt)), "relayed", show.Moment(admin.Moment(row.RelayedAt)),
			"error", row.Error, "parameters", row.Parameters))
	})
}

// checkNumbers refuses arguments that are no numbers of rows.
func checkNumbers(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if n, err := strconv.ParseInt(arg, 10, 64); err != nil || n < 1 {
			return cli.Usagef("%q is no row: give the number that `quern outbox ls` shows as SEQ", arg)
		}
	}
	return nil
}

// numbers parses arguments that checkNumbers has checked.
func numbers(args []string) []int64 {
	seqs := make([]int64, len(args))
	for i, arg := range args {
		seqs[i], _ = strconv.ParseInt(arg, 10, 64)
	}
	return seqs
}

func newRetry() *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry [SEQ...]", Short: "Put refused rows into the outbox again", Args: cli.Arguments(0, 1000),
	}
	all := cmd.Flags().Bool("all", false, "all refused rows")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return cli.Usagef("give the numbers of rows, or --all")
		}
		return checkNumbers(cmd, args)
	}
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, args []string) error {
		n, err := relay.Retry(cmd.Context(), db, numbers(args))
		return counted(cmd, n, "put into the outbox again", err)
	})
}

func newDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete SEQ...", Aliases: []string{"rm"}, Short: "Delete refused rows", Args: cli.Arguments(1, 1000),
		PreRunE: checkNumbers,
	}
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, args []string) error {
		n, err := relay.Delete(cmd.Context(), db, numbers(args))
		return counted(cmd, n, "deleted", err)
	})
}

func newAgain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "again", Short: "Send held rows once more, after Redis has lost tasks",
		Long: "Sends the rows that a relay with --hold has kept once more. A task that is still there is not made twice, and\n" +
			"neither is one that was made since and has ended.",
		Args: cli.Arguments(0, 0),
	}
	var since time.Time
	option.Time(cmd.Flags(), &since, "since", "rows that were relayed since this `TIME`")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if since.IsZero() {
			return cli.Usagef("no --since: give the time from which rows are to be sent once more")
		}
		return nil
	}
	return with(cmd, func(cmd *cobra.Command, db *postgres.Conn, _ []string) error {
		n, err := relay.Again(cmd.Context(), db, since)
		return counted(cmd, n, "sent once more", err)
	})
}

// counted prints how many rows a command changed.
func counted(cmd *cobra.Command, n int64, what string, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", units.Count(n, "row", "rows"), what)
	}
	return err
}
