package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/quern-project/quern/sdk/queue"
)

// BenchmarkQueuesSQL compares what an INSERT in each task costs: in a handler in Go, whose transaction ends with its task, and in
// River's workers, which insert by themselves, or in a transaction that also completes the job. The rates are medians of three.
func BenchmarkQueuesSQL(b *testing.B) {
	const tasks = 3000
	database := startPostgres(b)
	if database == "" {
		b.Skip("there is no PostgreSQL")
	}
	migrateRiver(b, database)
	pool := connectPostgres(b, database)
	defer pool.Close()
	if _, err := pool.Exec(b.Context(), "CREATE TABLE booked (id bigserial PRIMARY KEY, text text)"); err != nil {
		b.Fatal(err)
	}
	h := hosts{buildQuern(b), b.TempDir(), filepath.Join(b.TempDir(), "compiled")}
	r := riverPeer{database}
	systems := []struct {
		name string
		once func(b *testing.B) []float64
	}{
		{"Quern, Go", h.book(b, database, tasks)},
		{"River, INSERT", r.book(tasks, func(ctx context.Context, job *river.Job[riverArgs]) error {
			_, err := pool.Exec(ctx, "INSERT INTO booked (text) VALUES ($1)", job.Args.Text)
			return err
		})},
		{"River, INSERT and completion in a transaction", r.book(tasks, func(ctx context.Context, job *river.Job[riverArgs]) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO booked (text) VALUES ($1)", job.Args.Text); err != nil {
					return err
				}
				_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
				return err
			})
		})},
	}
	rates := make([][]float64, len(systems))
	for range 3 { // in turn, because the machine may have other work
		for i, s := range systems {
			if _, err := pool.Exec(b.Context(), "TRUNCATE booked"); err != nil {
				b.Fatal(err)
			}
			rates[i] = append(rates[i], s.once(b)[0])
			var rows int
			if err := pool.QueryRow(b.Context(), "SELECT count(*) FROM booked").Scan(&rows); err != nil || rows < tasks {
				b.Fatalf("%s: %d rows, %v", s.name, rows, err)
			}
		}
	}
	for i, s := range systems {
		slices.Sort(rates[i])
		b.Logf("%s: %.0f tasks/s (%.0f to %.0f)", s.name, rates[i][1], rates[i][0], rates[i][2])
	}
	own, plain, once := rates[0][1], rates[1][1], rates[2][1]
	b.ReportMetric(own/plain, "of-River")
	b.ReportMetric(own/once, "of-River-in-transaction")
}

// book drains tasks that insert a row each.
func (h hosts) book(b *testing.B, database string, tasks int) func(b *testing.B) []float64 {
	b.Helper()
	module := filepath.Join(b.TempDir(), "booker.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", module, "./testdata/booker")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if said, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build booker: %v\n%s", err, said)
	}
	if said, err := exec.Command(h.program, "database", "init", "--postgres", database).CombinedOutput(); err != nil {
		b.Fatalf("database init: %v\n%s", err, said)
	}
	content, err := os.ReadFile(module)
	if err != nil {
		b.Fatal(err)
	}
	h.install(b, "booker", content, nil)
	secrets := filepath.Join(h.plugins, "secrets", queue.DefaultTenant)
	if err := errors.Join(os.MkdirAll(secrets, 0o700), os.WriteFile(filepath.Join(secrets, "database.shop"), []byte(database), 0o600),
		os.WriteFile(filepath.Join(h.plugins, "booker", "booker.yaml"), []byte("capabilities: {sql: [{database: shop, access: rw}]}\n"), 0o600)); err != nil {
		b.Fatal(err)
	}
	grants := filepath.Join(h.plugins, "grants.yaml") // as many connections as River has
	if err := os.WriteFile(grants, []byte(`"*": {databases: {shop: {pool: 16}}}`), 0o600); err != nil {
		b.Fatal(err)
	}
	return func(b *testing.B) []float64 {
		client, begin, end := h.serve(b, "booker", "--secrets", filepath.Dir(secrets), "--grants", grants)
		defer end()
		q := client.Queue("booker")
		var ids []string
		for chunk := range slices.Chunk(slices.Repeat([]queue.Spec{{Parameters: []byte("text")}}, tasks), bulk) {
			receipts, err := q.EnqueueMany(b.Context(), chunk)
			if err != nil {
				b.Fatal(err)
			}
			for _, receipt := range receipts {
				ids = append(ids, receipt.ID)
			}
		}
		if err := completes(b, begin(), q, int64(tasks)); err != nil {
			b.Fatal(err)
		}
		finished := make([]float64, tasks)
		for i, id := range ids {
			task, err := client.Summary(b.Context(), id)
			if err != nil {
				b.Fatal(err)
			}
			finished[i] = float64(task.FinishedAt.UnixMicro()) / 1e6
		}
		return rate(finished)
	}
}

// book is drain with workers that insert a row.
func (r riverPeer) book(tasks int, work func(ctx context.Context, job *river.Job[riverArgs]) error) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		ledger := newLedger(tasks)
		noted := func(ctx context.Context, job *river.Job[riverArgs]) error {
			if err := work(ctx, job); err != nil {
				return fmt.Errorf("work: %w", err)
			}
			ledger.note()
			return nil
		}
		return r.working(b, noted, func(client *river.Client[pgx.Tx]) []float64 {
			for chunk := range slices.Chunk(slices.Repeat([]river.InsertManyParams{{Args: riverArgs{"text"}}}, tasks), bulk) {
				if _, err := client.InsertManyFast(b.Context(), chunk); err != nil {
					b.Fatal(err)
				}
			}
			return started(b, client, func() []float64 { return rate(ledger.wait(b)) })
		})
	}
}
