package tenant

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newTenantShow(env cli.Environment) *cobra.Command {
	return ofTenant(watchable(env, &cobra.Command{
		Use: "show [TENANT]", Short: "Show a tenant's quotas and limits, and what is used of them",
		Long: "Shows the quotas of a tenant, the limits of its queues and the quotas of its handlers' buckets, the fullest\n" +
			"first. Of a rate it shows the burst, and how much of it is used up now. GRANTS has what the hosts' file says\n" +
			"of a quota; VALUE counts. REFUSED counts what was refused or dropped so far.",
		Args: cli.Arguments(0, 1),
	}, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		quotas, err := client.Quotas(cmd.Context())
		if err != nil && len(quotas) == 0 {
			return err
		}
		return list(cmd, client, json, append([]admin.Quota{}, quotas...), "KIND NAME VALUE GRANTS USED LIMIT SHARE REFUSED",
			show.Rows(quotas, func(q *admin.Quota) show.View {
				share := any(nil)
				if q.Limit > 0 {
					share = fmt.Sprintf("%.0f %%", math.Floor(100*q.Share))
				}
				return show.Row(q.Kind, q.Name, show.Given(q.Value), show.Given(q.Granted), q.Used, show.Given(q.Limit), share,
					q.Refused)
			}))
	}))
}

func newTenantSet(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set [TENANT]", Short: "Set quotas, rates and weights of a tenant",
		Long: "Sets quotas, rates and weights of a tenant. They are kept in Redis and count for all hosts and producers at\n" +
			"once; none removes one, or brings back what the hosts' file of grants says. A rate is tasks by second, minute,\n" +
			"hour or day, and perhaps the burst that may come at once after a pause: 100/s, \"10/m burst 5\". The default\n" +
			"burst is what comes in a second, and at least 1. Fuel may end in k, M, G or T; 1G is about a second of computing.",
		Example: "  quern tenant set acme --tasks-waiting 10000 --running 50\n" +
			"  quern tenant set acme --rate 100/s --queue-rate \"mail=10/m burst 5\"\n" +
			"  quern tenant set acme --limit \"stripe=25/s charge refund\" --rate none\n" +
			"  quern tenant set acme --memory 4GiB --fuel-rate 2G/s --fuel-day 36T --kv-bytes 1GiB",
		Args: cli.Arguments(0, 1),
	}
	f := cmd.Flags()
	one, named := make(map[string]*string), make(map[string]*[]string)
	for _, kind := range manage.QuotaKinds {
		flag, about := quotaFlag(kind), kind.About
		if kind.Form == manage.FormRate || kind.Form == manage.FormShared {
			about = "rate of " + about
		} else if kind.Form != manage.FormWeight {
			about = "most " + about
		}
		if kind.Of == "" {
			one[kind.Name] = f.String(flag, "", about+": `"+strings.ToUpper(string(kind.Form))+"` or none")
		} else {
			value := strings.ToUpper(string(kind.Form))
			if kind.Form == manage.FormShared {
				value = "RATE QUEUE ..."
			}
			named[kind.Name] = f.StringArray(flag, nil, about+": `"+kind.Of+"="+value+"` or "+kind.Of+"=none; repeat it for others")
		}
		cli.NotSettings(f, flag)
	}
	changes := make(manage.Quotas)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, kind := range manage.QuotaKinds {
			flag := quotaFlag(kind)
			if !cmd.Flag(flag).Changed {
				continue
			}
			if kind.Of == "" {
				if err := noteQuota(changes, flag, kind.Name, *one[kind.Name]); err != nil {
					return err
				}
				continue
			}
			for _, text := range *named[kind.Name] {
				of, value, ok := strings.Cut(text, "=")
				if !ok {
					return cli.Usagef("--%s %s: write %s=VALUE", flag, cli.ShellWord(text), kind.Of)
				}
				if err := noteQuota(changes, flag, kind.Name+":"+of, value); err != nil {
					return err
				}
			}
		}
		if len(changes) == 0 {
			return cli.Usagef("nothing to set: name a quota, such as --tasks-waiting 10000; see `quern tenant set --help`")
		}
		return nil
	}
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		if err := client.SetQuotas(cmd.Context(), changes); err != nil {
			return err
		}
		known, err := client.Queues(cmd.Context())
		if err == nil && len(known) == 0 {
			cli.Note(cmd, "the tenant %s has no queue yet", client.Tenant())
		}
		return err
	}))
}

// quotaFlag returns the name of the flag that sets a quota of this kind.
func quotaFlag(kind manage.QuotaKind) string {
	name := strings.ReplaceAll(kind.Name, "_", "-")
	if kind.Of == "QUEUE" && kind.Name != "key_rate" {
		return "queue-" + name
	}
	return name
}

// noteQuota adds the value of a flag to changes.
func noteQuota(changes manage.Quotas, flag, name, value string) error {
	if value == "" {
		return cli.Usagef("--%s: give a value, or none", flag)
	}
	if _, _, err := manage.KindOf(name); value == noLimit && err == nil {
		changes[name] = ""
		return nil
	}
	value, err := admin.ParseQuota(name, value)
	if err != nil {
		return cli.Usagef("--%s: %w", flag, cli.TrimInvalid(err))
	}
	changes[name] = value
	return nil
}
