// Package kv is the store that guests use through kv_get, kv_set, kv_delete, kv_increment, kv_swap and
// kv_list: small values by key, in buckets of a tenant, in Redis. A plugin sees the buckets that its manifest
// grants it. A bucket's quota counts everything in the bucket, including what other plugins wrote.
//
//	guest ──kv_set──▶ runtime/abi ──▶ service.KV = Store.For(grants) ──one script──▶ Redis
//	                                   │ not granted: service.ErrDenied
//	quern kv ls, get ──▶ Store.Buckets, List, Get ──────────────────────one script──▶ Redis
//
// # What Redis stores
//
// NS is the tenant, B a bucket:
//
//	NS_kv_B      hash  values by key
//	NS_kvkeys_B  zset  the same keys, all with the score 0, which sorts them by their bytes
//	NS_kvttl_B   zset  keys by the time at which they expire, in milliseconds since the epoch; only expiring keys
//	NS_kvs       hash  the bytes of each bucket; an empty bucket has no field
//
// No other key of a tenant begins with these four words, and a tenant's name has no underscore: the keys of a bucket
// never collide with other keys, whatever its name. The quota bounds a bucket's entries: each counts the bytes of its
// key and its value, and a key has at least one byte. A tenant's quota kv_bytes bounds the bytes of all buckets; what
// has expired counts until a call of its bucket removes it. Neither quota counts Redis's own overhead for an entry:
// about 140 bytes, and 240 for one that expires (Redis 7.0 on 64 bits).
//
// # Scripts
//
// Every call is one Lua script (folder scripts), atomic in Redis. Redis's clock decides what has expired. Redis 7.0
// cannot expire the fields of a hash, so each script first removes expired entries, a bounded number of them, and
// subtracts their bytes. If more entries have expired, and the answer depends on them, the script answers "again" and
// is called again: an expired value is never read or listed, and never takes room from a write.
//
// # Failure
//
// If Redis is away, full, loading or read-only, a call returns service.ErrUnavailable. No write is half done then.
// But if the answer was lost, the write may have been done: a caller that increments or swaps cannot know. The same
// holds for a call whose context ends while it waits: it returns at once, and Redis may still run it.
//
// If a key has another type than the table says, a call that needs the key changes nothing and returns an error that
// names the key. If the keys of a bucket do not fit together, because somebody removed one by hand or Redis evicted it,
// the next script that counts rebuilds names and bytes from the values. It does so all at once, and is the only script
// whose time grows with the number of values. It does not notice a field that was overwritten by hand with a value of
// another length. After such an edit, remove the bucket's field of NS_kvs: the bucket is then counted again.
//
// If Redis's clock goes back, values live longer by as much.
package kv
