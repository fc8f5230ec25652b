// Package mover moves whole tenants: it exports a tenant's keys to a file, imports them into another tenant or Redis,
// and deletes them, in blocks, resumable, and beside running hosts.
//
//	m := mover.New(client)
//	moved, err := m.Export(ctx, "acme.quern", nil)
package mover
