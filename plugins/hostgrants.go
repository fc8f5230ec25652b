package plugins

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// HostGrants are what a host grants its tenants at most, and what it gives to their handlers: the file of --grants. It
// does not change. nil bounds nothing and gives nothing.
type HostGrants struct {
	file    string
	tenants map[string]*TenantGrants
	open    bool // others than the file's owner may read it
}

// TenantGrants are those of one tenant.
type TenantGrants struct {
	// Ceiling is what manifests may grant at most, see Capabilities.Under; nil for no bound.
	Ceiling *Capabilities
	// Ceilings bound limits, and MaxQueues the queues that the plugins in the tenant's folder serve all together; 0 for no
	// bound of its own.
	Ceilings  Ceilings
	MaxQueues int
	// Config takes the place of what manifests say by the same name.
	Config map[string]string
	// Secrets are where to find them, by name.
	Secrets map[string]Secret

	name string // of the tenant, or everyone
}

// everyone is the entry of the tenants that have none of their own.
const everyone = "*"

// maxHostGrants bounds the file of grants, in bytes.
const maxHostGrants = 4 << 20

// secretsField is the key of a tenant's entry that manifests do not have.
const secretsField = "secrets"

// LoadHostGrants reads the file of --grants, once and for all: what changes in it later takes a restart. Every problem
// is told at once, as a *ManifestError; paths of secrets that are not absolute are in the folder of the file.
func LoadHostGrants(path string) (*HostGrants, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its other end
	if err != nil {
		return nil, fmt.Errorf("read grants %q: %w", path, cause(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is " + typeName(info.Mode()))
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(file, maxHostGrants+1))
	}
	if err != nil {
		return nil, fmt.Errorf("read grants %q: %w", path, cause(err))
	}
	g, err := ParseHostGrants(path, data)
	if err != nil {
		return nil, err
	}
	const others = fs.FileMode(0o077)
	g.open = info.Mode().Perm()&others != 0
	return g, nil
}

// ParseHostGrants reads the bytes of the file of --grants, whose path is in the messages.
func ParseHostGrants(path string, data []byte) (*HostGrants, error) {
	g := &HostGrants{file: path, tenants: map[string]*TenantGrants{}}
	d := newDecoder(path)
	d.most, d.discreet, d.ceiling, d.top = maxHostGrants, true, true, "the tenant"
	if root, ok := d.root(data, `write at least "*": {}`); ok {
		d.entries(root, func(tenant string, keyNode, value node) {
			if d.tenant(tenant, keyNode, value) {
				g.tenants[tenant] = g.read(d, tenant, value)
			}
		})
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return g, nil
}

// tenant reports what is no name of a tenant, and the keys of one that stand beside the tenants.
func (d *decoder) tenant(name string, keyNode, value node) bool {
	switch {
	case name != everyone && !isTenant(name):
		d.wrong(keyNode, quote(name)+" is no name of a tenant", `write 1 to 32 of a-z, 0-9 and -, such a word in braces, or "*" for all others`)
	case slices.ContainsFunc(tenantFields(nil), func(f field) bool { return f.path == name }) &&
		!slices.ContainsFunc(tenantFields(nil), func(f field) bool { return has(value, f.path) }):
		d.wrong(keyNode, "stands where the name of a tenant belongs", `write it below a tenant's name, or below "*" for all others`)
	default:
		return true
	}
	return false
}

// read reads the entry of a tenant.
func (g *HostGrants) read(d *decoder, tenant string, n node) *TenantGrants {
	t := &TenantGrants{name: tenant}
	d.fields, d.values, d.prefix = tenantFields(t), map[string]node{}, tenant
	var m Manifest
	d.section(node{n.Node, ""}, &m)
	d.fields, d.prefix = nil, ""
	t.Config = m.Config
	t.Ceilings = ceilingsOf(&m, g.place(t))
	if _, bounded := d.values["capabilities"]; bounded {
		t.Ceiling = &m.Capabilities
	}
	return t
}

// tenantFields are the keys of a tenant's entry: as in a manifest, and others.
func tenantFields(t *TenantGrants) []field {
	fields := slices.DeleteFunc(schema(), func(f field) bool {
		section, _ := splitPath(f.path)
		return f.path != "config" && f.path != "capabilities" && section != "capabilities"
	})
	for i, f := range fields {
		if f.path == "capabilities.env" || f.path == filesField {
			fields[i].decode = func(d *decoder, n node, _ *Manifest) {
				d.wrong(n, "has no ceiling, since it gives a plugin nothing that its module could not hold", "remove it")
			}
		}
	}
	fields = append(fields, boundFields()...)
	return append(
		fields,
		field{"max_queues", func(d *decoder, n node, _ *Manifest) { t.MaxQueues = d.count(n, maxTries, "the host's bound") }},
		field{secretsField, func(d *decoder, n node, _ *Manifest) { t.Secrets = d.sources(n) }},
	)
}

// sources reads where secrets are. What stands there is in no message: it may be a secret in the wrong place.
func (d *decoder) sources(n node) map[string]Secret {
	secrets := map[string]Secret{}
	d.entries(n, func(name string, keyNode, value node) {
		if !isSecret(name) {
			d.wrong(keyNode, quote(name)+" is no name of a secret", secretRule)
			return
		}
		if value.Kind != yaml.MappingNode {
			d.wrong(value, "does not say where the secret is", "write {env: VARIABLE}, {file: PATH} or {value: TEXT}")
			return
		}
		secret, keys := Secret{line: keyNode.Line}, 0
		before := len(d.problems)
		d.entry(value, secretsField, func(key string, at node) {
			keys++
			text, ok := d.quiet(at)
			switch {
			case !ok:
			case key == "env" && !isVariable(text):
				d.wrong(at, "is no name of a variable", "write letters, digits and _, not beginning with a digit")
			case key == "env":
				secret.Env = text
			case key == "file":
				if secret.File = text; !filepath.IsAbs(text) {
					secret.File = filepath.Join(filepath.Dir(d.file), text)
				}
			case len(text) > MaxSecret:
				d.wrong(at, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("write at most %d", MaxSecret))
			default:
				secret.Value = text
			}
		})
		if keys != 1 && len(d.problems) == before {
			d.wrong(value, fmt.Sprintf("has %d keys", keys), "write one of env, file and value")
		}
		secrets[name] = secret
	})
	return secrets
}

// quiet reads a text that is not empty, and says nothing of what stands in its place.
func (d *decoder) quiet(n node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Value == "" || !slices.Contains(textTags, n.Tag) {
		d.wrong(n, "is no text, or an empty one", "write a text, in quotes if it begins with other than a letter")
		return "", false
	}
	return n.Value, true
}

// Of are the grants of a tenant: its own, or else those of everyone. A tenant that has neither is granted nothing. nil
// bounds nothing.
func (g *HostGrants) Of(tenant string) *TenantGrants {
	if g == nil {
		return nil
	}
	for _, name := range []string{tenant, everyone} {
		if t := g.tenants[name]; t != nil {
			return t
		}
	}
	return &TenantGrants{name: tenant, Ceiling: &Capabilities{}}
}

// place is the entry of a tenant, for messages.
func (g *HostGrants) place(t *TenantGrants) string { return fmt.Sprintf("%q in %s", t.name, g.file) }

// CheckTenants returns a *ManifestError if the grants say nothing of one of the tenants.
func (g *HostGrants) CheckTenants(tenants []string) error {
	if g == nil {
		return nil
	}
	return manifestError(g.file, g.missing(tenants))
}

// Check is CheckTenants, and returns such an error also if a secret of one of the tenants cannot be read now.
func (g *HostGrants) Check(tenants []string) error {
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
	return manifestError(g.file, problems)
}

// missing tells which of the tenants the grants say nothing of.
func (g *HostGrants) missing(tenants []string) (problems []Problem) {
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

// check tells which secrets cannot be read now.
func (t *TenantGrants) check() (problems []Problem) {
	for name, secret := range t.Secrets {
		if _, err := secret.Read(); err != nil {
			what, remedy := err.Error(), "let the host's user read it, or remove the secret"
			var known *fault
			if errors.As(err, &known) {
				what, remedy = known.what, known.remedy
			}
			problems = append(problems, Problem{Line: secret.line, Field: t.name + ".secrets." + name, What: what, Remedy: remedy})
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return problems
}

// Warnings are what whoever runs the host should know of the file.
func (g *HostGrants) Warnings() (warnings []string) {
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

// SecretFiles are those in which secrets are found.
func (g *HostGrants) SecretFiles() (paths []string) {
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
