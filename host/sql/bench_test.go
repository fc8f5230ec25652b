package sql_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime/service"
)

// BenchmarkTransaction measures a transaction with one INSERT that ends with a task.
func BenchmarkTransaction(b *testing.B) {
	server := postgrestest.Shared(b)
	url := server.Database(b)
	owner := server.Connect(b, url)
	if err := relay.Init(b.Context(), owner); err != nil {
		b.Fatal(err)
	}
	if err := owner.Script(b.Context(), "CREATE TABLE t (id bigserial PRIMARY KEY, text text)"); err != nil {
		b.Fatal(err)
	}
	databases := sql.New(sql.Config{})
	b.Cleanup(databases.Close)
	grant := sql.Grant{
		Source: sql.Source{Name: "database.shop", URL: url}, Database: "shop", Write: true, Rows: 1000, Bytes: 1 << 20,
		Timeout: 10 * time.Second, Transaction: 20 * time.Second,
	}
	var next atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			run := databases.For(sql.Task{
				Tenant: "acme", ID: fmt.Sprint(next.Add(1)), Created: "1", Complete: "shop",
				Grant: func(context.Context, string) (sql.Grant, error) { return grant, nil },
			})
			if _, err := run.Query(b.Context(), "shop", "INSERT INTO t (text) VALUES ($1)", []service.SQLValue{{Kind: service.SQLText, Data: []byte("x")}}); err != nil {
				b.Error(err)
			}
			if _, err := run.Complete(b.Context(), []byte(`{"result":"x"}`)); err != nil {
				b.Error(err)
			}
			run.Close()
		}
	})
}
