package nodehost

import (
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// tenantURLs is a flag that takes TENANT=URL several times. String and GetSlice hide passwords.
type tenantURLs []string

func (u *tenantURLs) String() string { return strings.Join(u.GetSlice(), ",") }

func (u *tenantURLs) Type() string { return "TENANT=URL" }

// Set is part of pflag.Value. urlsOfTenants checks the values.
func (u *tenantURLs) Set(text string) error {
	*u = append(*u, strings.Split(text, ",")...)
	return nil
}

// Append is part of pflag.SliceValue.
func (u *tenantURLs) Append(text string) error { *u = append(*u, text); return nil }

// Replace is part of pflag.SliceValue.
func (u *tenantURLs) Replace(list []string) error { *u = slices.Clone(list); return nil }

// Redact hides the passwords in a value.
func (*tenantURLs) Redact(value string) string {
	list := tenantURLs(strings.Split(value, ","))
	return list.String()
}

// GetSlice is part of pflag.SliceValue. In a URL that cannot be read, anything may be part of a password.
func (u *tenantURLs) GetSlice() []string {
	list := make([]string, len(*u))
	for i, pair := range *u {
		const hidden = "xxxxx"
		tenant, url, _ := strings.Cut(pair, "=")
		list[i] = hidden
		if shown := queue.Redact(url); shown != hidden && queue.ValidTenant(tenant) == nil {
			list[i] = tenant + "=" + shown
		}
	}
	return list
}
