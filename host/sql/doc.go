// Package sql runs the statements of handlers on the PostgreSQL databases of their tenants. It implements service.SQL.
//
//	guest ── sql ──▶ Run ── transaction ── connection ◀── pool ◀── Databases
//	host  ── Stored, Complete, Fail ──▶ Run ──▶ quern.runs in the same database
//
// # Exactly once
//
// With `commit: complete`, the row of the run in quern.runs is committed in the same transaction as the handler's
// changes, before Redis is told of the completion. It has the settlement: result, children and publications. A task
// that runs again, because its host died in between, finds the row before its guest starts, and is settled with it.
// The primary key lets only one run of a task commit.
//
// # Failure
//
// A database that does not serve costs no attempt: see Run.Away. A task whose statement ends its connection again and
// again does: see ErrConnectionLost. If the answer to a COMMIT is lost, Complete returns
// UnknownError, and Resolve finds out. A transaction that takes too long, or whose answer is too large, loses its
// connection, which undoes it.
//
// # Hostile guests
//
// What separates tenants is the role with which a connection logs in. Statements are run one by one by the extended
// protocol, and begin with a word of a list. No answer is read further than its bounds, and no message larger than they
// allow is buffered.
package sql
