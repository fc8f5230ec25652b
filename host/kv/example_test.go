package kv_test

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A plugin counts in its bucket, and has no other; people see what it keeps.
func Example() {
	ctx := context.Background()
	rdb, err := queue.Connect(queuetest.SharedURL()) // redis://127.0.0.1:6379/0
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rdb.Close()

	store := kv.New(rdb, "example")
	deny := func(bucket string, _ bool) error { return fmt.Errorf("%w: bucket %s", service.ErrDenied, bucket) }
	plugin := store.For([]kv.Grant{{Bucket: "seen", Write: true, Quota: 10 << 20}}, deny)
	for range 3 {
		_, err = plugin.Increment(ctx, "seen", "a.jpg", 1)
	}
	value, _ := plugin.Get(ctx, "seen", "a.jpg")
	fmt.Printf("%s %v\n", value, err)

	_, err = plugin.Get(ctx, "secrets", "a.jpg")
	fmt.Println(err)

	buckets, err := store.Buckets(ctx)
	fmt.Printf("%+v %v\n", buckets, err)
	// Output:
	// 3 <nil>
	// denied: bucket secrets
	// [{Name:seen Keys:1 Bytes:6}] <nil>
}
