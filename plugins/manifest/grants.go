package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/plugins/signature"
	"github.com/quern-project/quern/plugins/strictyaml"
	"github.com/quern-project/quern/runtime/replay"
)

// Grants are the content of the file of --grants: the bounds on what a host grants its tenants, and the configuration
// and secrets of their handlers. Nil grants bound nothing.
type Grants struct {
	file    string
	tenants map[string]*TenantGrants
	open    bool // users other than the file's owner can read the file
}

// TenantGrants are the grants of one tenant.
type TenantGrants struct {
	// Ceiling bounds the capabilities of manifests, see Capabilities.LimitTo; nil for no bound.
	Ceiling *Capabilities
	// Ceilings bound the limits of manifests. MaxQueues bounds the number of queues that the plugins in the tenant's
	// folder serve; 0 means no bound.
	Ceilings  Ceilings
	MaxQueues int
	// Config has values that replace those of manifests with the same names.
	Config map[string]string
	// Secrets says where to find each secret, by name.
	Secrets map[string]Secret
	// Signers are the keys of those who may sign releases of the tenant's plugins. If there are any, every release must be
	// signed by one of them.
	Signers []signature.Key
	// Databases says how the tenant's handlers reach their databases, by name.
	Databases map[string]Database
	// Recipients are the keys to which the records of the tenant's runs are encrypted; none: they are not.
	Recipients []replay.Recipient
	// Quotas are the quotas of the tenant, by name, as the file has them.
	Quotas map[string]Quota
	// Where names the entry, for messages: the tenant's name or "*", and the file.
	Where string

	name string // the tenant's name, or everyone
}

// Quota is a quota of a tenant, which Grants.QuotasOf reads.
type Quota struct {
	text string
	line int
}

// everyone is the name of the entry that applies to all tenants without their own entry.
const everyone = "*"

// maxGrantsFile bounds the file of grants, in bytes.
const maxGrantsFile = 4 << 20

// LoadGrants reads the file of --grants. The host reads it only once: later changes need a restart. An *Error lists all
// problems. Relative paths of secrets are relative to the folder of the file.
func LoadGrants(path string) (*Grants, error) {
	file, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("read grants %q: %w", path, Cause(err))
	}
	defer file.Close()
	data, info, err := read(file, maxGrantsFile+1)
	if err != nil {
		return nil, fmt.Errorf("read grants %q: %w", path, err)
	}
	g, err := ParseGrants(path, data)
	if err != nil {
		return nil, err
	}
	g.open = info.Mode().Perm()&0o077 != 0
	return g, nil
}

// ParseGrants parses the content of the file of --grants. path is for messages and for relative paths of secrets.
func ParseGrants(path string, data []byte) (*Grants, error) {
	g := &Grants{file: path, tenants: map[string]*TenantGrants{}}
	d := newDecoder(path)
	d.most, d.ceiling, d.top = strictyaml.Limits{Bytes: maxGrantsFile, Values: maxFileValues}, true, "the tenant"
	if root, ok := d.root(data, `write at least "*": {}`); ok {
		d.entries(root, func(tenant string, keyNode, value node) {
			if !d.tenant(tenant, keyNode, value) {
				return
			}
			t, m := &TenantGrants{name: tenant, Where: g.where(tenant)}, &Manifest{}
			d.keys, d.values, d.prefix = t.keys(m), map[string]node{}, tenant
			d.section(node{value.Node, ""}, d.keys)
			d.prefix = ""
			t.Config, t.Ceilings = m.Config, m.ceilings(t.Where)
			if _, bounded := d.values["capabilities"]; bounded {
				t.Ceiling = &m.Capabilities
			}
			g.tenants[tenant] = t
		})
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return g, nil
}

// tenant reports a name that is not a tenant's. If the name is a key that belongs below a tenant, the message says so.
// It returns false for both.
func (d *decoder) tenant(name string, keyNode, value node) bool {
	names := namesOf(new(TenantGrants).keys(new(Manifest)))
	switch {
	case name != everyone && !IsTenant(name):
		d.bad(keyNode, "is not a tenant name", `write 1 to 32 of a-z, 0-9 and -, such a word in braces, or "*" for all others`)
	case slices.Contains(names, name) && !slices.ContainsFunc(names, value.has):
		d.wrong(keyNode, "is where a tenant name belongs", `write it below a tenant's name, or below "*" for all others`)
	default:
		return true
	}
	return false
}

func (g *Grants) where(tenant string) string { return fmt.Sprintf("%q in %s", tenant, g.file) }

// keys returns the keys of a tenant's entry. Some of them are also keys of manifests; their values are read into m.
func (t *TenantGrants) keys(m *Manifest) []key {
	capabilities := m.Capabilities.keys()
	for i, k := range capabilities {
		if k.name == "env" || k.name == "files" {
			capabilities[i].read = func(d *decoder, n node) {
				d.wrong(n, "has no ceiling, since it gives a plugin nothing that its module could not hold", "remove it")
			}
		}
	}
	return slices.Concat(
		[]key{{name: "config", value: configValue(&m.Config)}, {name: "capabilities", value: value{keys: capabilities}}},
		m.ceilingKeys(),
		[]key{
			{name: "max_queues", value: countValue(&t.MaxQueues, maxTries, "the host's bound")},
			{name: "quotas", value: value{read: func(d *decoder, n node) { t.Quotas = d.quotas(n) }}},
			{name: "signers", value: value{read: func(d *decoder, n node) { t.Signers = d.signers(n) }}},
			{name: "databases", value: value{read: func(d *decoder, n node) { t.Databases = d.hostDatabases(n) }}},
			{name: "records", value: value{keys: []key{{name: "recipients", value: value{
				read: func(d *decoder, n node) { t.Recipients = d.recipients(n) },
			}.require("write recipients: [age1...], with the public keys of those who may replay")}}}},
			{name: "secrets", value: value{read: func(d *decoder, n node) { t.Secrets = d.sources(n) }}},
		},
	)
}

// quotas reads quotas, which only the host knows.
func (d *decoder) quotas(n node) map[string]Quota {
	quotas := map[string]Quota{}
	d.entries(n, func(name string, keyNode, value node) {
		if d.text(value, "write a number or a rate, such as tasks_waiting: 10000 or rate: 100/s") {
			quotas[name] = Quota{value.Value, keyNode.Line}
		}
	})
	return quotas
}

// signers reads the public keys of those who may sign releases, by name.
func (d *decoder) signers(n node) (keys []signature.Key) {
	d.entries(n, func(name string, keyNode, value node) {
		if err := CheckWord(name); err != nil {
			d.bad(keyNode, err.Error(), "write "+WordRule)
			return
		}
		key, err := signature.ParseKey(name, value.Value)
		if value.Kind != yaml.ScalarNode || err != nil {
			d.wrong(value, "is not a public key", signature.KeyRule)
			return
		}
		keys = append(keys, key)
	})
	return keys
}

// maxRecipients bounds the keys to which a record is encrypted: each adds 200 bytes to it, or 4 KiB.
const maxRecipients = 20

// recipients reads the public keys to which records are encrypted. Messages do not repeat them, since a value may be a
// misplaced private key.
func (d *decoder) recipients(n node) (all []replay.Recipient) {
	d.notEmpty(n, "name one, or leave records out")
	d.list(n, maxRecipients, "[age1...]", "name", func(at node) {
		recipient, err := replay.ParseRecipient(at.Value)
		if at.Kind != yaml.ScalarNode || err != nil {
			what := "is not a public key of age"
			if err != nil {
				what = err.Error()
			}
			d.wrong(at, what, replay.RecipientRule)
			return
		}
		all = append(all, recipient)
	})
	if err := replay.CheckRecipients(all); err != nil {
		d.wrong(n, err.Error(), "write keys of one kind: age does not encrypt to both")
	}
	return all
}

// CheckSigned returns an error unless a text, the statement of a release, may be trusted: it is signed by one of the
// tenant's signers. Without signers, only required makes it an error.
func (t *TenantGrants) CheckSigned(text []byte, signatures []string, required bool) error {
	if len(t.Signers) == 0 {
		if required {
			return fmt.Errorf("--require-signed, and the host knows no signers: add `signers` to the tenant's entry %s in the file of --grants",
				t.Where)
		}
		return nil
	}
	_, err := signature.Check(text, signatures, t.Signers)
	return err
}

// sources reads where to find secrets. Messages do not repeat the values, since a value may be a misplaced secret.
func (d *decoder) sources(n node) map[string]Secret {
	secrets := map[string]Secret{}
	d.entries(n, func(name string, keyNode, value node) {
		secret := Secret{line: keyNode.Line}
		switch before := len(d.problems); {
		case !isSecret(name):
			d.bad(keyNode, "is not a secret name", secretRule)
			return
		case value.Kind != yaml.MappingNode:
			d.wrong(value, "does not say where the secret is", "write {env: VARIABLE}, {file: PATH} or {value: TEXT}")
			return
		default:
			d.secret = true
			d.entry(value, secret.keys(filepath.Dir(d.file)))
			d.secret = false
			if found := len(value.Content) / 2; found != 1 && len(d.problems) == before {
				d.wrong(value, fmt.Sprintf("has %d keys", found), "write one of env, file and value")
			}
		}
		secrets[name] = secret
	})
	return secrets
}

// keys returns the keys of a secret. A relative path of a file is relative to folder.
func (s *Secret) keys(folder string) []key {
	text := func(then func(d *decoder, n node)) value {
		return value{read: func(d *decoder, n node) {
			if n.Kind != yaml.ScalarNode || n.Value == "" || !slices.Contains(textTags, n.Tag) {
				d.wrong(n, "is not a text, or an empty one", "write a text, in quotes if it begins with other than a letter")
				return
			}
			then(d, n)
		}}
	}
	return []key{
		{name: "env", value: text(func(d *decoder, n node) {
			if s.Env = n.Value; !isVariable(s.Env) {
				d.wrong(n, "is not a variable name", variableRule)
			}
		})},
		{name: "file", value: text(func(_ *decoder, n node) {
			if s.File = n.Value; !filepath.IsAbs(s.File) {
				s.File = filepath.Join(folder, s.File)
			}
		})},
		{name: "value", value: text(func(d *decoder, n node) {
			if s.Value = n.Value; len(s.Value) > MaxSecret {
				d.wrong(n, fmt.Sprintf("has %d bytes", len(s.Value)), fmt.Sprintf("write at most %d", MaxSecret))
			}
		})},
	}
}

// Of returns the grants of a tenant: its own entry, or else the entry "*". A tenant that has neither is granted
// nothing.
func (g *Grants) Of(tenant string) *TenantGrants {
	if g == nil {
		return &TenantGrants{}
	}
	nothing := &TenantGrants{name: tenant, Where: g.where(tenant), Ceiling: &Capabilities{}}
	return cmp.Or(g.tenants[tenant], g.tenants[everyone], nothing)
}

// CheckTenants returns an *Error if the grants have no entry for one of the tenants.
func (g *Grants) CheckTenants(tenants []string) error {
	if g == nil {
		return nil
	}
	return NewError(g.file, g.missing(tenants))
}

// Check does what CheckTenants does, and also returns an *Error if a secret of one of the tenants cannot be read now.
func (g *Grants) Check(tenants []string) error {
	if g == nil {
		return nil
	}
	problems := g.missing(tenants)
	checked := map[*TenantGrants]bool{}
	for _, tenant := range tenants {
		if t := g.Of(tenant); !checked[t] {
			checked[t] = true
			problems = append(problems, t.check()...)
		}
	}
	return NewError(g.file, problems)
}

// QuotasOf returns the quotas of each of the tenants by name. parse checks a quota and returns its value; an *Error
// lists all errors of parse.
func (g *Grants) QuotasOf(tenants []string,
	parse func(name, text string) (string, error),
) (map[string]map[string]string, error) {
	var problems []Problem
	quotas := map[string]map[string]string{}
	checked := map[*TenantGrants]map[string]string{}
	for _, tenant := range tenants {
		t := g.Of(tenant)
		if checked[t] == nil {
			checked[t] = map[string]string{}
			for name, q := range t.Quotas {
				value, err := parse(name, q.text)
				if err != nil {
					problems = append(problems, Problem{
						q.line, t.name + ".quotas." + name, err.Error(), "see `quern tenant set --help`",
					})
				}
				checked[t][name] = value
			}
		}
		quotas[tenant] = checked[t]
	}
	return quotas, NewError(g.file, problems)
}

func (g *Grants) missing(tenants []string) (problems []Problem) {
	for _, tenant := range tenants {
		if g.tenants[tenant] == nil && g.tenants[everyone] == nil {
			problems = append(problems, Problem{
				What:   fmt.Sprintf("names neither the tenant %q nor %q for all others", tenant, everyone),
				Remedy: fmt.Sprintf("add %q: {}, with which manifests alone decide, or a ceiling in it", tenant),
			})
		}
	}
	return problems
}

// check returns a problem for each secret that cannot be read now.
func (t *TenantGrants) check() (problems []Problem) {
	for name, secret := range t.Secrets {
		if _, err := secret.Read(); err != nil {
			p := Problem{
				secret.line, t.name + ".secrets." + name, err.Error(),
				"let the host's user read it, or remove the secret",
			}
			if fault, ok := errors.AsType[*Fault](err); ok {
				p.What, p.Remedy = fault.What, fault.Remedy
			}
			problems = append(problems, p)
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return problems
}

// Warnings returns what the operator should change in the file, although it is valid.
func (g *Grants) Warnings() []string {
	if g == nil || !g.open {
		return nil
	}
	for _, t := range g.tenants {
		for _, secret := range t.Secrets {
			if secret.Value != "" {
				return []string{g.file + " holds a secret, and others than its owner may read it: chmod 600, or name a file or a variable instead"}
			}
		}
	}
	return nil
}

// SecretFiles returns the paths of the files with secrets.
func (g *Grants) SecretFiles() (paths []string) {
	if g == nil {
		return nil
	}
	for _, t := range g.tenants {
		for _, secret := range t.Secrets {
			if secret.File != "" {
				paths = append(paths, secret.File)
			}
		}
	}
	return paths
}
