// Package store is shared by the packages of sdk/queue. It contains the names of a tenant's keys in Redis, the Lua
// scripts that change the keys, the parsing of the scripts' replies, the encoding of values, and connections.
package store
