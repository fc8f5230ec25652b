// Package kv is the store that guests use through kv_get, kv_set, kv_delete, kv_increment, kv_swap and
// kv_list: small values by key, in buckets of a tenant, in Redis. A plugin sees the buckets that its manifest
// grants it, each with a quota that holds for the bucket as a whole, whoever wrote what is in it.
//
//	guest ──kv_set──▶ runtime/abi ──▶ service.KV = Store.For(grants) ──one script──▶ Redis
//	                                   │ not granted: service.ErrDenied
//	quern kv ls, get ──▶ Store.Buckets, List, Get ──────────────────────one script──▶ Redis
//
// # What Redis holds
//
// NS is the tenant, B a bucket:
//
//	NS_kv_B      hash  values by key
//	NS_kvkeys_B  zset  the same keys, all with the score 0, so that they are in the order of their bytes
//	NS_kvttl_B   zset  keys by when they expire, in milliseconds since the epoch; only those that do
//	NS_kvs       hash  how many bytes each bucket holds; a bucket that holds none has no field
//
// The names are made of four words that no other key of a tenant begins with, and a tenant's name has no
// underscore: whatever a bucket is called, its keys are nothing else's. What bounds them is the quota: an
// entry counts the bytes of its key and its value, and a key has one at least. What Redis itself needs beside
// these for an entry is not counted: about 140 bytes, and 240 for one that expires (Redis 7.0 on 64 bits).
//
// # Scripts
//
// Every call is one Lua script (folder scripts), atomic in Redis. Redis's clock decides what has expired. Redis
// 7.0 cannot let fields of a hash expire, so each script first removes what has, a bounded number of entries, and
// with them their bytes. A script for whose answer that is not enough, because more has expired, says so and is
// called again: what has expired is never read or listed and never keeps a write from its room.
//
// # Failure
//
// Redis away, full, loading or read-only: service.ErrUnavailable. Nothing is half done then, but a write whose
// answer was lost may have been done: who increments or swaps and gets this error does not know. The same goes for
// a call whose context ends while it waits: it returns at once, and Redis may still get to it.
//
// A key of another type than the table says is an error that names the key, if the call needs it; nothing was
// changed then. Where the keys of a bucket do not fit together, because somebody removed one by hand or Redis
// evicted it, the next script that counts makes names and bytes anew from the values, all in one go: the one
// script that takes longer the more there is. It does not notice a field that was overwritten by hand with one of
// another length: who does that removes the bucket's field of NS_kvs, and it is counted anew.
//
// A clock of Redis that goes back lets values live longer, by as much.
package kv
