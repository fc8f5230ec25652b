package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/units"
)

// DatabaseSecret begins the names of the secrets with the URLs of databases: database.NAME. No handler can read them.
const DatabaseSecret = "database."

// PayloadKeysSecret is the name of the secret with the keys that encrypt the tenant's payloads in Redis, as
// sdk/queue/seal parses them. No handler can read it.
const PayloadKeysSecret = "payload.keys"

// SQLGrant is a database on which a handler is allowed to run statements.
type SQLGrant struct {
	// Database is the database's name. The operator decides which database has this name.
	Database string `json:"database"`
	// Write lets the handler change what the database's role may change. Without it transactions are read-only.
	Write bool `json:"write,omitempty"`
	// AtCall lets the handler commit when it likes. Otherwise its transaction ends with the task.
	AtCall bool `json:"commit_at_call,omitempty"`
	// Rows and Bytes bound one answer.
	Rows  int   `json:"rows"`
	Bytes int64 `json:"bytes"`
	// Timeout bounds one statement, Transaction the time from the first statement to the end.
	Timeout     time.Duration `json:"timeout_ns"`
	Transaction time.Duration `json:"transaction_ns"`

	line int
}

// AtCompletion reports whether the handler's changes are committed together with the completion of its task.
func (g *SQLGrant) AtCompletion() bool { return g.Write && !g.AtCall }

func atCompletion(g SQLGrant) bool { return g.AtCompletion() }

// The words of capabilities.sql.commit, and the bounds of its numbers.
const (
	commitComplete = afterComplete
	commitCall     = afterCall

	defaultRows        = 10_000
	maxRows            = 1_000_000
	defaultAnswer      = 16 << 20
	maxAnswer          = 64 << 20
	defaultStatement   = 10 * time.Second
	defaultTransaction = 30 * time.Second
	maxTransaction     = time.Hour
)

func newSQLGrant(ceiling bool) SQLGrant {
	if ceiling { // only what the operator writes is a bound
		return SQLGrant{Rows: maxRows, Bytes: maxAnswer, Timeout: maxTransaction, Transaction: maxTransaction}
	}
	return SQLGrant{
		Rows: defaultRows, Bytes: defaultAnswer, Timeout: defaultStatement, Transaction: defaultTransaction,
	}
}

func (g *SQLGrant) keys() []key {
	duration := func(at *time.Duration, standard string) value {
		v := durationValue(at, standard, standard)
		return value{schema: v.schema, read: func(d *decoder, n node) {
			before := len(d.problems)
			if v.read(d, n); len(d.problems) == before && *at > maxTransaction {
				d.bad(n, "is more than 1h", "write a duration of at most 1h, such as "+standard)
			}
		}}
	}
	return []key{
		{"database", "The database's name. The operator decides which database that is.", databaseValue(&g.Database).
			require("write its name, such as database: shop")},
		{"access", "r to read, rw to change it as well. Default r.", flagValue(&g.Write, accessRead, accessWrite)},
		{"commit", "When changes are committed: with the completion of the task, exactly once, or when the handler says so. Default complete.", flagValue(&g.AtCall, commitComplete, commitCall)},
		{
			"rows", "How many rows an answer may have. Default 10000.",
			countValue(&g.Rows, maxRows, "10000"),
		},
		{
			"bytes", "How many bytes an answer may have, up to 64MiB. Default 16MiB.",
			sizeValue(&g.Bytes, 1<<10, maxAnswer, defaultAnswer),
		},
		{"timeout", "How long a statement may take, up to 1h. Default 10s.", duration(&g.Timeout, "10s")},
		{
			"transaction", "How long a transaction may take from its first statement to its end, up to 1h. Default 30s.",
			duration(&g.Transaction, "30s"),
		},
	}
}

// databaseValue describes the name of a database; in a ceiling a * in it stands for any text.
func databaseValue(at *string) value {
	return checkedValue(at, textProperty(databasePattern, "shop"), func(d *decoder, n node) bool {
		if !d.text(n, "write "+DatabaseRule) {
			return false
		}
		name := n.Value
		if d.ceiling {
			name = strings.ReplaceAll(name, wildcard, "x") // pattern looks at their number
		}
		if !IsDatabase(name) {
			d.bad(n, "is not a database name", "write "+DatabaseRule)
			return false
		}
		return true
	})
}

// databases reads capabilities.sql.
func (d *decoder) databases(n node) (grants []SQLGrant) {
	d.list(n, maxGrants, "[{database: NAME, access: rw}]", "grant", func(at node) {
		grant := newSQLGrant(d.ceiling)
		grant.line = at.Line
		d.entry(at, grant.keys())
		name, there := d.values[at.path+".database"]
		commit, commits := d.values[at.path+".commit"]
		switch {
		case !there: // reported already
		case grant.Database == "" || d.ceiling && !d.pattern(name):
		case d.ceiling && commits:
			d.wrong(commit, "has no ceiling", "remove it")
		case slices.ContainsFunc(grants, func(g SQLGrant) bool { return g.Database == grant.Database }):
			d.twice(at, grant.Database)
		case !d.ceiling && grant.AtCompletion() && slices.ContainsFunc(grants, atCompletion):
			d.wrong(at, "is the second database whose changes are committed with the completion of the task, and only one can be",
				"write access: r or commit: call for the others")
		default:
			grants = append(grants, grant)
		}
	})
	return grants
}

// database returns the grant of a database; nil if there is none.
func (c *Capabilities) database(name string) *SQLGrant {
	for i := range c.SQL {
		if matches(c.SQL[i].Database, name) {
			return &c.SQL[i]
		}
	}
	return nil
}

// limitDatabases returns the granted databases that the ceiling allows, each with what both allow.
func limitDatabases(grants, ceiling []SQLGrant) (limited []SQLGrant) {
	for _, g := range grants {
		var most SQLGrant
		granted := false
		for _, c := range ceiling {
			if matches(c.Database, g.Database) {
				granted = true
				most.Write = most.Write || c.Write
				most.Rows, most.Bytes = max(most.Rows, c.Rows), max(most.Bytes, c.Bytes)
				most.Timeout, most.Transaction = max(most.Timeout, c.Timeout), max(most.Transaction, c.Transaction)
			}
		}
		if !granted {
			continue
		}
		g.Write = g.Write && most.Write
		g.Rows, g.Bytes = min(g.Rows, most.Rows), min(g.Bytes, most.Bytes)
		g.Timeout, g.Transaction = min(g.Timeout, most.Timeout), min(g.Transaction, most.Transaction)
		limited = append(limited, g)
	}
	return limited
}

// Database returns the grant of a database, or the denial of using it.
func (p *Permissions) Database(name string) (*SQLGrant, error) {
	if g := p.Capabilities.database(name); g != nil {
		return g, nil
	}
	return nil, p.deny(func(c *Capabilities) bool { return c.database(name) != nil },
		fmt.Sprintf("database %q is not granted", name), func(c *Capabilities) (string, string) {
			if entry := fmt.Sprintf("{database: %q}", name); len(c.SQL) > 0 {
				return entry, "capabilities.sql"
			} else {
				return "sql: [" + entry + "]", ""
			}
		})
}

// DenyCommit returns the denial of committing a database at the call; nil if that is granted.
func (p *Permissions) DenyCommit(name string) error {
	return p.deny(func(c *Capabilities) bool {
		g := c.database(name)
		return g != nil && g.Write && g.AtCall
	}, fmt.Sprintf("database %q is not granted with access: rw and commit: call", name),
		func(c *Capabilities) (string, string) {
			place := fmt.Sprintf("database %q in capabilities.sql", name)
			switch g := c.database(name); {
			case g != nil && g.Write:
				return "commit: call", place
			case g != nil && g.AtCall:
				return "access: rw", place
			case g != nil:
				return "access: rw, commit: call", place
			}
			return fmt.Sprintf("sql: [{database: %q, access: rw, commit: call}]", name), ""
		})
}

// RaiseSQL returns the remedy for a bound of capabilities.sql: key is rows, bytes, timeout or transaction.
func (p *Permissions) RaiseSQL(name, key string) string {
	asked, granted := p.asked.database(name), p.Capabilities.database(name)
	if asked != nil && granted != nil && p.Ceiling != nil {
		line := func(value string) string {
			return p.denial(fmt.Sprintf("sql: [{database: %q, %s: %s}]", name, key, value)).Remedy()
		}
		switch {
		case key == "rows" && granted.Rows < asked.Rows:
			return line(fmt.Sprint(asked.Rows))
		case key == "bytes" && granted.Bytes < asked.Bytes:
			return line(units.FormatSize(asked.Bytes))
		case key == "timeout" && granted.Timeout < asked.Timeout:
			return line(asked.Timeout.String())
		case key == "transaction" && granted.Transaction < asked.Transaction:
			return line(asked.Transaction.String())
		}
	}
	return "raise " + key + " of database " + Quote(name) + " in capabilities.sql"
}

// describe returns the grant as a line for people.
func (g *SQLGrant) describe() string {
	words := []string{"sql " + g.Database + " " + accessRead}
	if g.Write {
		words = []string{"sql " + g.Database + " " + accessWrite, "commit " + commitComplete}
		if g.AtCall {
			words[1] = "commit " + commitCall
		}
	}
	return strings.Join(append(words, fmt.Sprintf("%d rows of %s", g.Rows, units.FormatSize(g.Bytes)),
		"timeout "+g.Timeout.String(), "transaction "+g.Transaction.String()), ", ")
}

// Database says how the handlers of a tenant reach a database.
type Database struct {
	// By is the header of a task that chooses the database: its value VALUE chooses the secret database.NAME.VALUE.
	// Default: all tasks have the database of the secret database.NAME.
	By string
	// Pool is the most connections of the tenant's tasks on one host. Default 8.
	Pool int
	// Settings are set in each transaction, such as app.tenant for policies of the database. Handlers can change them.
	Settings map[string]string
}

const maxPool = 1000

func (b *Database) keys() []key {
	return []key{
		{name: "by", value: value{read: func(d *decoder, n node) {
			const remedy = "write the name of a header in lower case, such as nsj-tenant"
			switch {
			case !d.text(n, remedy):
			case egress.CheckHeader(n.Value, "") != nil || n.Value != strings.ToLower(n.Value):
				d.bad(n, "is not a header of a task", remedy)
			default:
				b.By = n.Value
			}
		}}},
		{name: "pool", value: countValue(&b.Pool, maxPool, "8")},
		{name: "settings", value: value{read: func(d *decoder, n node) {
			b.Settings = d.texts(n)
			for _, name := range slices.Sorted(maps.Keys(b.Settings)) {
				if !settingName.MatchString(name) {
					d.wrong(n, Quote(name)+" is not a setting of PostgreSQL", "write one such as app.tenant or search_path")
				}
			}
		}}},
	}
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]{0,62}$`)

// hostDatabases reads the section databases of a tenant's grants.
func (d *decoder) hostDatabases(n node) map[string]Database {
	all := map[string]Database{}
	d.entries(n, func(name string, keyNode, value node) {
		if !IsDatabase(name) {
			d.bad(keyNode, "is not a database name", "write "+DatabaseRule)
			return
		}
		var b Database
		d.entry(value, b.keys())
		all[name] = b
	})
	return all
}
