package sql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// Source says where a database is.
type Source struct {
	Name string // the secret's name, for messages
	URL  string
	// Pool is the most connections of the tenant to the database. Default DefaultPool.
	Pool int
	// Settings are session settings by name, which are set in each transaction.
	Settings map[string]string
}

// Grant is what a task may do on a database.
type Grant struct {
	Source
	Database string
	Write    bool
	// AtCall is true if the guest commits. Otherwise Complete does.
	AtCall bool
	// The bounds of an answer, of a statement and of a transaction.
	Rows                 int
	Bytes                int64
	Timeout, Transaction time.Duration
	// Prepare is a script that runs first in the transaction of Config.Undo.
	Prepare string
	// Raise says how to raise a bound: rows, bytes, timeout or transaction.
	Raise func(key string) string
}

// Task is a run of a task that uses databases.
type Task struct {
	Tenant, ID string
	// Created distinguishes the task from others that had the same ID.
	Created string
	// Grant returns what the task may do on a database. An error wraps one of package service.
	Grant func(ctx context.Context, database string) (Grant, error)
	// DenyCommit returns the denial of Commit; nil if it is granted.
	DenyCommit func(database string) error
	// Complete is the name of the database whose changes are committed with the task's completion; "" for none.
	Complete string
	// MaxSettlement is the most bytes of a settlement. Default and maximum MaxSettlement.
	MaxSettlement int64
	// Borrow reserves memory for an answer until the next call; nil if nothing is to be reserved.
	Borrow func(ctx context.Context, bytes int64) error
	// Warn tells the operators something about the task.
	Warn func(message string, fields ...any)
}

// Run is a run of a task. It implements service.SQL. Its methods belong to the goroutine that runs the task. A nil Run
// has no databases.
type Run struct {
	databases    *Databases
	task         Task
	transactions map[string]*transaction
	grants       map[string]Grant
	away         error // why a database did not serve a call
	borrowed     int64
	steps        map[string][]byte // of Config.Undo, by database and name
}

// For returns a run of a task. Close ends it.
func (d *Databases) For(task Task) *Run {
	if task.MaxSettlement <= 0 || task.MaxSettlement > MaxSettlement {
		task.MaxSettlement = MaxSettlement
	}
	return &Run{
		databases: d, task: task, transactions: make(map[string]*transaction), grants: make(map[string]Grant),
		steps: make(map[string][]byte),
	}
}

// Close undoes what is not committed.
func (r *Run) Close() {
	if r == nil {
		return
	}
	for _, t := range r.transactions {
		t.rollback()
	}
	clear(r.transactions)
}

// Away returns why a database did not serve a call of the guest; nil if all did.
func (r *Run) Away() error {
	if r == nil {
		return nil
	}
	return r.away
}

// smallAnswer is the size of answers that borrow no memory.
const smallAnswer = 64 << 10

// borrow reserves memory for an answer that grows to size bytes, of at most most bytes.
func (r *Run) borrow(ctx context.Context, size int, most int64) error {
	if int64(size) <= max(smallAnswer, r.borrowed) || r.task.Borrow == nil {
		return nil
	}
	r.borrowed = most
	return r.task.Borrow(ctx, 2*most) // the answer, and a message while it is read
}

// transaction returns the transaction on a database; the first statement begins it.
func (r *Run) transaction(ctx context.Context, database string) (*transaction, error) {
	if t := r.transactions[database]; t != nil {
		return t, nil
	}
	grant, ok := r.grants[database]
	if !ok {
		var err error
		if grant, err = r.task.Grant(ctx, database); err != nil {
			if errors.Is(err, service.ErrUnavailable) {
				r.away = err
			}
			return nil, err
		}
		r.grants[database] = grant
	}
	p, err := r.databases.pool(r.task.Tenant, grant.Source)
	if err != nil {
		r.away = err
		r.task.Warn("the URL of a database is wrong: tasks that use it are put off", "database", database, "error", err)
		return nil, r.away
	}
	t := &transaction{run: r, grant: grant, pool: p}
	r.transactions[database] = t
	return t, nil
}

// Query implements service.SQL.
func (r *Run) Query(ctx context.Context, database, statement string, parameters []service.SQLValue) ([]byte, error) {
	t, err := r.transaction(ctx, database)
	if err != nil {
		return nil, err
	}
	if word, ok := mayRun(statement); !ok {
		return nil, refuse(word, &t.grant)
	}
	values, formats := make([][]byte, len(parameters)), make([]int16, len(parameters))
	for i, p := range parameters {
		switch p.Kind {
		case service.SQLText:
			values[i] = p.Data
		case service.SQLBytes:
			values[i], formats[i] = p.Data, 1
		}
	}
	r.borrowed = 0
	answer, err := t.query(ctx, statement, values, formats)
	r.databases.counts.statement(answer, err)
	return answer, err
}

// refuse returns the denial of a statement by its first word.
func refuse(word string, g *Grant) error {
	remedy := "statements begin with SELECT, VALUES, TABLE, WITH, INSERT, UPDATE, DELETE, MERGE, EXPLAIN, DECLARE, FETCH, MOVE, CLOSE, SAVEPOINT, RELEASE or ROLLBACK TO"
	switch word {
	case "BEGIN", "START":
		remedy = "the first statement begins a transaction"
	case "COMMIT", "END":
		if remedy = "the host commits when the task completes"; g.AtCall {
			remedy = "use the function that commits"
		}
	case "ROLLBACK", "ABORT":
		remedy = "use the function that rolls back, or ROLLBACK TO a savepoint"
	}
	return fmt.Errorf("%w: a statement that begins with %q: %s", service.ErrDenied, word, remedy)
}

// Rollback implements service.SQL.
func (r *Run) Rollback(ctx context.Context, database string) error {
	if t := r.transactions[database]; t != nil {
		if _, lost := t.state(); r.databases.config.Undo && lost == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.back(ctx)
		}
		t.rollback()
		delete(r.transactions, database)
		return nil
	}
	_, err := r.transaction(ctx, database) // is it granted?
	delete(r.transactions, database)
	return err
}
