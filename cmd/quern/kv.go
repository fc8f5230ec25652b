package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// withStore wraps a command that reads the tenant's store.
func withStore(env environment, run func(cmd *cobra.Command, store *kv.Store, client *queue.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		url, tenant, err := target(cmd, env)
		if err != nil {
			return err
		}
		rdb, err := queue.Connect(url)
		if err != nil {
			return wrongRedis(cmd, err)
		}
		defer rdb.Close()
		client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant})
		if err != nil {
			return err
		}
		defer client.Close()
		err = run(cmd, kv.New(rdb, tenant), client, args)
		if errors.Is(err, service.ErrInvalid) {
			return wrongUsage(err)
		}
		return err
	}
}

func newKVLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls [BUCKET]", Aliases: []string{"list"}, Short: "List the tenant's buckets, or the keys of one", Args: arguments(0, 1)}
	prefix := cmd.Flags().String("prefix", "", "only keys with this prefix")
	after := cmd.Flags().String("after", "", "only keys after this one")
	limit := cmd.Flags().Int("limit", 100, "most keys to list, up to 1000")
	output := outputFlag(cmd)
	cmd.RunE = withStore(env, func(cmd *cobra.Command, store *kv.Store, client *queue.Client, args []string) error {
		if len(args) > 0 {
			keys, err := store.List(cmd.Context(), args[0], *prefix, *after, *limit)
			if err != nil {
				return err
			}
			rows := make([]view, len(keys))
			for i, key := range keys {
				rows[i] = row(key)
			}
			return list(cmd, client, output.json(), append([]string{}, keys...), "KEY", rows)
		}
		buckets, err := store.Buckets(cmd.Context())
		if err != nil && len(buckets) == 0 {
			return err // else one damaged bucket does not hide the others
		}
		serving, unknown := host.Plugins(cmd.Context(), client)
		err = errors.Join(err, unknown)
		quotas := map[string]int64{} // the largest of the plugins that live hosts serve
		for _, p := range serving {
			if p.Grants == nil {
				continue
			}
			for _, bucket := range p.Grants.KV {
				quotas[bucket.Bucket] = max(quotas[bucket.Bucket], bucket.Quota)
			}
		}
		views := make([]view, len(buckets))
		for i, b := range buckets {
			views[i] = view{
				{"tenant", "tenant", client.Tenant()},
				{"bucket", "bucket", b.Name},
				{"keys", "keys", b.Keys},
				{"bytes", "bytes", b.Bytes},
				{"quota", "quota", given(quotas[b.Name])},
			}
		}
		return errors.Join(list(cmd, client, output.json(), views, "TENANT BUCKET KEYS BYTES QUOTA", views), err)
	})
	return cmd
}

func newKVGet(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "get BUCKET KEY", Short: "Print the bytes of a value", Args: arguments(2, 2),
		RunE: withStore(env, func(cmd *cobra.Command, store *kv.Store, _ *queue.Client, args []string) error {
			value, err := store.Get(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(value)
			return err
		}),
	}
}
