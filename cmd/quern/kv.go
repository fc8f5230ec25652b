package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

func newKV(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kv", Short: "Look into the key-value store of handlers",
		Args: onlyCommands, RunE: needsCommand,
	}
	clientFlags(cmd)
	cmd.AddCommand(newKVLs(env), newKVGet(env))
	return cmd
}

// withStore wraps a command that looks into the tenant's store.
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

// bucketView is a bucket as `kv ls` prints it. Quota is the largest that a plugin has by which live hosts serve the
// tenant; 0 if none may write.
type bucketView struct {
	Tenant string `json:"tenant"`
	Bucket string `json:"bucket"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Quota  int64  `json:"quota,omitempty"`
}

// quotas are those of a tenant's buckets, as live hosts grant them.
func quotas(ctx context.Context, client *queue.Client) (map[string]int64, error) {
	serving, err := listPlugins(ctx, client)
	quotas := map[string]int64{}
	for _, p := range serving {
		if p.Grants == nil {
			continue
		}
		for _, bucket := range p.Grants.KV {
			quotas[bucket.Bucket] = max(quotas[bucket.Bucket], bucket.Quota)
		}
	}
	return quotas, err
}

func newKVLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls [BUCKET]", Short: "List the tenant's buckets, or the keys of one", Args: arguments(0, 1)}
	prefix := cmd.Flags().String("prefix", "", "only keys that begin so")
	after := cmd.Flags().String("after", "", "only keys behind this one")
	limit := cmd.Flags().Int("limit", 100, "at most so many keys, up to 1000")
	output := outputFlag(cmd)
	cmd.RunE = withStore(env, func(cmd *cobra.Command, store *kv.Store, client *queue.Client, args []string) error {
		if len(args) > 0 {
			keys, err := store.List(cmd.Context(), args[0], *prefix, *after, *limit)
			if err != nil {
				return err
			}
			if output.json() {
				return writeJSON(cmd.OutOrStdout(), append([]string{}, keys...))
			}
			rows := make([][]string, len(keys))
			for i, key := range keys {
				rows[i] = []string{key}
			}
			return writeTable(cmd.OutOrStdout(), "KEY", rows)
		}
		buckets, err := store.Buckets(cmd.Context())
		if err != nil && len(buckets) == 0 {
			return err // else those that can be read are shown, though another one cannot
		}
		quotas, unknown := quotas(cmd.Context(), client)
		err = errors.Join(err, unknown)
		tenant := client.Tenant()
		views, rows := make([]bucketView, len(buckets)), make([][]string, len(buckets))
		for i, b := range buckets {
			quota := "-"
			if n := quotas[b.Name]; n > 0 {
				quota = strconv.FormatInt(n, 10)
			}
			views[i] = bucketView{tenant, b.Name, b.Keys, b.Bytes, quotas[b.Name]}
			rows[i] = []string{tenant, b.Name, strconv.FormatInt(b.Keys, 10), strconv.FormatInt(b.Bytes, 10), quota}
		}
		if output.json() {
			return errors.Join(writeJSON(cmd.OutOrStdout(), views), err)
		}
		return errors.Join(writeTable(cmd.OutOrStdout(), "TENANT BUCKET KEYS BYTES QUOTA", rows), err)
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
