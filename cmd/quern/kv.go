package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

func newKV(env environment) *cobra.Command {
	cmd := group("kv", "Read the key-value store of handlers", newKVLs(env), newKVGet(env))
	clientFlags(cmd)
	return cmd
}

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

// bucketView is a bucket as `kv ls` prints it. Quota is the largest of the plugins that live hosts serve; 0 if none may
// write.
type bucketView struct {
	Tenant string `json:"tenant"`
	Bucket string `json:"bucket"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Quota  int64  `json:"quota,omitempty"`
}

// quotas returns the quotas that live hosts grant, by bucket.
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
			return showList(cmd, output.json(), keys, "KEY", func(key string) []any { return []any{key} })
		}
		buckets, err := store.Buckets(cmd.Context())
		if err != nil && len(buckets) == 0 {
			return err // else one damaged bucket does not hide the others
		}
		quotas, unknown := quotas(cmd.Context(), client)
		err = errors.Join(err, unknown)
		views := make([]bucketView, len(buckets))
		for i, b := range buckets {
			views[i] = bucketView{client.Tenant(), b.Name, b.Keys, b.Bytes, quotas[b.Name]}
		}
		return errors.Join(showList(cmd, output.json(), views, "TENANT BUCKET KEYS BYTES QUOTA", func(v bucketView) []any {
			return []any{v.Tenant, v.Bucket, v.Keys, v.Bytes, field{value: int(v.Quota)}.text()}
		}), err)
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
