package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
)

// inStore adds the remedy to errors of the tenant's store.
func inStore(run clientRun) clientRun {
	return func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		err := run(cmd, client, args, json)
		switch {
		case errors.Is(err, service.ErrInvalid):
			return wrongUsage(err)
		case errors.Is(err, service.ErrNotFound):
			return refusedf("%w: see `quern kv ls %s`", err, shellWord(args[0]))
		}
		return err
	}
}

func newKVLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls [BUCKET]", Aliases: []string{"list"}, Short: "List the tenant's buckets, or the keys of one", Args: arguments(0, 1)}
	prefix := cmd.Flags().String("prefix", "", "only keys with this prefix")
	after := cmd.Flags().String("after", "", "only keys after this one")
	limit := 100
	newNumber(cmd.Flags(), &limit, "limit", "most keys to list, up to 1000", 1, kv.MaxList, "use 1 to 1000")
	return printing(env, cmd, inStore(func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if len(args) > 0 {
			keys, err := client.Keys(cmd.Context(), args[0], *prefix, *after, limit)
			if err != nil {
				return err
			}
			return list(cmd, client, json, append([]string{}, keys...), "KEY", rowsOf(keys, func(key *string) view { return row(*key) }))
		}
		buckets, err := client.Buckets(cmd.Context())
		if err != nil && len(buckets) == 0 {
			return err // else one damaged bucket does not hide the others
		}
		return errors.Join(list(cmd, client, json, buckets, "TENANT BUCKET KEYS BYTES QUOTA", rowsOf(buckets, func(b *admin.Bucket) view {
			return row(b.Tenant, b.Bucket, b.Keys, b.Bytes, given(b.Quota))
		})), err)
	}))
}

func newKVGet(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "get BUCKET KEY", Short: "Print the bytes of a value", Args: arguments(2, 2),
		RunE: withClient(env, nil, inStore(func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
			value, err := client.Value(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(value)
			return err
		})),
	}
}
