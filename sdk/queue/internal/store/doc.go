// Package store is what the packages of sdk/queue share: the keys of a tenant in Redis, the Lua scripts that change them and the
// reading of their replies, the encoding of values, and connections.
package store
