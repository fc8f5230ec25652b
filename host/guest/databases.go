package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

// databases finds the databases of one task.
type databases struct {
	task     *Task
	services *Services
}

// databases returns the run of a task on databases; nil if the manifest asks for none.
func (s *Services) databases(t *Task) *sql.Run {
	if s.config.Databases == nil || len(t.Asked.SQL) == 0 {
		return nil
	}
	d := &databases{t, s}
	task := sql.Task{
		Tenant: t.Tenant, ID: t.ID, Created: t.Created, Grant: d.grant, DenyCommit: t.Permissions.DenyCommit,
		Borrow: t.Host.Borrow, Warn: d.warn, MaxSettlement: maxSettlement(t.Permissions),
	}
	for _, g := range t.Permissions.Capabilities.SQL {
		if g.AtCompletion() {
			task.Complete = g.Database
		}
	}
	return s.config.Databases.For(task)
}

// maxSettlement returns the most bytes of a task's settlement. Base64 needs a third more than the bytes.
func maxSettlement(p *manifest.Permissions) int64 {
	most := p.Limits.Output
	if g := p.Capabilities.Enqueue; g != nil {
		most += g.Bytes
	}
	if p.Capabilities.Publish != nil {
		most += manifest.MaxPublicationBytes
	}
	return 2*most + 4<<20
}

// grant returns what the task may do on a database.
func (d *databases) grant(ctx context.Context, name string) (sql.Grant, error) {
	p := d.task.Permissions
	g, err := p.Database(name)
	if err != nil {
		return sql.Grant{}, err
	}
	settings := p.Databases[name]
	source := sql.Source{Name: manifest.DatabaseSecret + name, Pool: settings.Pool, Settings: settings.Settings}
	if settings.By != "" {
		value := d.task.Headers[settings.By]
		if !manifest.IsDatabase(value) {
			return sql.Grant{}, fmt.Errorf("%w: the task's header %s chooses the database %s, and is %q: enqueue the task with %s in it",
				service.ErrInvalid, settings.By, name, value, manifest.DatabaseRule)
		}
		source.Name += "." + value
	}
	source.URL, err = d.url(ctx, name, source.Name)
	switch {
	case errors.Is(err, service.ErrNotFound) && settings.By != "": // anybody who enqueues chooses the value
		return sql.Grant{}, fmt.Errorf("%w: the task's header %s is %q, and there is no secret %s: enqueue the task with another value, or %s",
			service.ErrInvalid, settings.By, d.task.Headers[settings.By], source.Name, d.place(source.Name))
	case err != nil:
		return sql.Grant{}, d.unreadable(ctx, source.Name, err)
	}
	return sql.Grant{
		Source: source, Database: name, Write: g.Write, AtCall: g.AtCall, Rows: g.Rows, Bytes: g.Bytes,
		Timeout: g.Timeout, Transaction: g.Transaction, Prepare: d.services.config.DatabaseScripts[name],
		Raise: func(key string) string { return p.RaiseSQL(name, key) },
	}, nil
}

// url returns the URL of a database, which is in a secret. The error is service.ErrNotFound if there is no such secret.
func (d *databases) url(ctx context.Context, name, secret string) (string, error) {
	if urls := d.services.config.DatabaseURLs; urls != nil {
		if urls[name] == "" {
			return "", fmt.Errorf("%w: there is no database %q here: give --database %s=postgres://USER@HOST/DATABASE",
				service.ErrDenied, name, name)
		}
		return urls[name], nil
	}
	value, err := service.Await(ctx, func() ([]byte, error) { // the folder may be on another machine
		return ReadSecret(d.services.config.Secrets, d.task.Tenant, secret, d.task.Permissions.Secrets)
	})
	if err == nil {
		d.services.missing.Delete(d.task.Tenant + "/" + secret)
	}
	return string(value), err
}

// place says where an operator writes the URL of a database.
func (d *databases) place(secret string) string {
	return fmt.Sprintf("write the URL into %s/%s in the folder of --secrets, or into secrets of the grants", d.task.Tenant, secret)
}

// unreadable tells the operators once that a secret with the URL of a database cannot be read. It returns an error with
// which tasks are put off.
func (d *databases) unreadable(ctx context.Context, secret string, err error) error {
	if errors.Is(err, service.ErrNotFound) || errors.Is(err, service.ErrTooBig) || errors.Is(err, service.ErrInvalid) {
		err = fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	if _, known := d.services.missing.LoadOrStore(d.task.Tenant+"/"+secret, true); !known && ctx.Err() == nil {
		d.task.Host.Warn("a secret with the URL of a database cannot be read: tasks that use it are put off", "secret", secret,
			"error", err, "remedy", d.place(secret))
	}
	return err
}

// warn tells the operators something once.
func (d *databases) warn(message string, fields ...any) {
	if _, known := d.services.missing.LoadOrStore(d.task.Tenant+"/"+message+fmt.Sprint(fields...), true); !known {
		d.task.Host.Warn(message, fields...)
	}
}

// noDatabases denies all databases, for plugins whose manifest asks for none.
type noDatabases struct{ permissions *manifest.Permissions }

func (n noDatabases) deny(name string) error {
	if _, err := n.permissions.Database(name); err != nil {
		return err
	}
	return fmt.Errorf("%w: this host has no databases", service.ErrDenied)
}

// Query implements service.SQL, as do the methods below.
func (n noDatabases) Query(_ context.Context, database, _ string, _ []service.SQLValue) ([]byte, error) {
	return nil, n.deny(database)
}

func (n noDatabases) Commit(_ context.Context, database, _ string, _ []byte) ([]byte, error) {
	return nil, n.deny(database)
}

func (n noDatabases) Rollback(_ context.Context, database string) error { return n.deny(database) }

func (n noDatabases) Step(_ context.Context, database, _ string) ([]byte, error) {
	return nil, n.deny(database)
}
