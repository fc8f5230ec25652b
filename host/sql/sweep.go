package sql

import (
	"context"
	"sync"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// DefaultKeep is how long rows of finished tasks are kept, in case Redis fails over to an older state.
	DefaultKeep = time.Hour

	sweepPause = time.Minute
	sweepTime  = 30 * time.Second // how long one sweep of a database may take
	sweepBlock = 200
)

// Run closes idle connections, and deletes old rows of quern.runs, until ctx ends.
func (d *Databases) Run(ctx context.Context) {
	var closer sync.WaitGroup
	defer closer.Wait()
	closer.Go(func() { // deleting rows can take long
		for periodic.Sleep(ctx, idleTime/4) {
			d.CloseIdle(time.Now().Add(-idleTime))
		}
	})
	for periodic.Sleep(ctx, d.config.Sweep) {
		for _, p := range d.withRows() {
			if err := d.Sweep(ctx, p); err != nil && ctx.Err() == nil {
				d.config.Logger.Debug("delete old rows of quern.runs", "tenant", p.key.tenant, "database", p.key.source, "error", err)
			}
		}
	}
}

// withRows returns the pools with connections whose tasks leave rows. If all connections are in use, a sweep waits for
// one as tasks do.
func (d *Databases) withRows() (pools []*pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pools {
		if len(p.idle)+p.used > 0 && p.commits {
			pools = append(pools, p)
		}
	}
	return pools
}

// SweepAll deletes the rows of quern.runs that are not needed any more in all databases in use.
func (d *Databases) SweepAll(ctx context.Context) (err error) {
	for _, p := range d.withRows() {
		if failed := d.Sweep(ctx, p); failed != nil {
			err = failed
		}
	}
	return err
}

// Sweep deletes rows of quern.runs that were committed more than Keep ago, and whose tasks have ended in Redis.
func (d *Databases) Sweep(ctx context.Context, p *pool) error {
	if d.config.Open == nil {
		return nil
	}
	c, err := d.acquire(ctx, p, true)
	if err != nil {
		return err
	}
	defer func() { d.release(c, true) }()
	ctx, stop := context.WithTimeout(ctx, sweepTime)
	defer stop()
	for after, last := "-infinity", ""; ; {
		var tasks []string
		err := c.Query(ctx, func(r postgres.Row) {
			tasks = append(tasks, r.Text(0))
			after, last = r.Text(1), r.Text(0)
		}, `SELECT task, committed FROM quern.runs WHERE role = session_user AND tenant = $1
			AND committed < now() - make_interval(secs => $2) AND (committed, task) > ($3, $4) ORDER BY committed, task LIMIT $5`,
			p.key.tenant, int(d.config.Keep.Seconds()), after, last, sweepBlock)
		if err != nil || len(tasks) == 0 {
			return err
		}
		open, err := d.config.Open(ctx, p.key.tenant, tasks)
		if err != nil {
			return err
		}
		ended := tasks[:0]
		for _, id := range tasks {
			if !open[id] {
				ended = append(ended, id)
			}
		}
		if _, err := c.Exec(ctx, `DELETE FROM quern.runs WHERE role = session_user AND tenant = $1 AND task = ANY($2)
			AND committed < now() - make_interval(secs => $3)`, p.key.tenant, ended, int(d.config.Keep.Seconds())); err != nil {
			return err
		}
	}
}

// noteRows records that a pool has rows in quern.runs.
func (d *Databases) noteRows(p *pool, row bool) {
	if row {
		d.mu.Lock()
		p.commits = true
		d.mu.Unlock()
	}
}
