package tenant

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/runtime/service"
)

// inStore adds the remedy to errors of the tenant's store.
func inStore(run clientRun) clientRun {
	return func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		err := run(cmd, client, args, json)
		switch {
		case errors.Is(err, service.ErrInvalid):
			return cli.WrongUsage(err)
		case errors.Is(err, service.ErrNotFound):
			if none := noBucket(cmd, client, args[0]); none != "" {
				return cli.Refusedf("%s", none)
			}
			return cli.Refusedf("%w: see `quern kv ls %s`", err, cli.ShellWord(args[0]))
		}
		return err
	}
}

func newKVLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [BUCKET]", Aliases: []string{"list"},
		Short: "List the tenant's buckets, or the keys of one", Args: cli.Arguments(0, 1),
	}
	prefix := cmd.Flags().String("prefix", "", "only keys with this prefix")
	after := cmd.Flags().String("after", "", "only keys after this one")
	limit := 100
	option.Number(cmd.Flags(), &limit, "limit", "most keys to list, up to 1000", 1, kv.MaxList, "use 1 to 1000")
	return printing(env, cmd, inStore(func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if len(args) > 0 {
			keys, err := client.Keys(cmd.Context(), args[0], *prefix, *after, limit)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				if none := noBucket(cmd, client, args[0]); none != "" {
					cli.Note(cmd, "%s", none)
				}
			}
			return list(cmd, client, json, append([]string{}, keys...), "KEY",
				show.Rows(keys, func(key *string) show.View { return show.Row(*key) }))
		}
		buckets, err := client.Buckets(cmd.Context())
		if err != nil && len(buckets) == 0 {
			return err // otherwise list the buckets that are not damaged
		}
		return errors.Join(list(cmd, client, json, buckets, "TENANT BUCKET KEYS BYTES QUOTA",
			show.Rows(buckets, func(b *admin.Bucket) show.View {
				return show.Row(b.Tenant, b.Bucket, b.Keys, b.Bytes, show.Given(b.Quota))
			})), err)
	}))
}

// noBucket says that there is no bucket of that name, and which one may be meant; "" if there is one.
func noBucket(cmd *cobra.Command, client admin.Tenant, name string) string {
	buckets, err := client.Buckets(cmd.Context())
	if err != nil || slices.ContainsFunc(buckets, func(b admin.Bucket) bool { return b.Bucket == name }) {
		return ""
	}
	names := make([]string, len(buckets))
	for i, b := range buckets {
		names[i] = b.Bucket
	}
	remedy := "see `quern kv ls`"
	if near := spelling.Nearest(name, names); len(near) > 0 {
		remedy = fmt.Sprintf("did you mean %s?", near[0])
	}
	return fmt.Sprintf("tenant %s has no bucket %q: %s", client.Tenant(), name, remedy)
}

func newKVGet(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "get BUCKET KEY", Short: "Print the bytes of a value", Args: cli.Arguments(2, 2)}
	return connecting(env, cmd, inStore(func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		value, err := client.Value(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		return cli.WriteResult(cmd, value, "get them with > FILE")
	}))
}
