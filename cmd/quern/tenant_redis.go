package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/sdk/queue"
)

// tenantURLs is a flag that takes TENANT=URL several times. What it shows of itself has no password.
type tenantURLs []string

func (u *tenantURLs) String() string { return strings.Join(u.GetSlice(), ",") }
func (u *tenantURLs) Type() string   { return "TENANT=URL" }

// Set is part of pflag.Value. What cannot be is told when the host is made.
func (u *tenantURLs) Set(text string) error {
	*u = append(*u, strings.Split(text, ",")...)
	return nil
}

// Append is part of pflag.SliceValue.
func (u *tenantURLs) Append(text string) error { *u = append(*u, text); return nil } //nolint:unparam // pflag asks for the error

// Replace is part of pflag.SliceValue.
func (u *tenantURLs) Replace(list []string) error { *u = slices.Clone(list); return nil } //nolint:unparam // pflag asks for the error

// GetSlice is part of pflag.SliceValue. Where the URL cannot be read, anything before it may be a part of a password.
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

// tenantURL is the URL of one tenant, and the setting that has it.
type tenantURL struct{ url, from string }

// urlsOfTenants are the URLs of the tenants that have one of their own.
func (o *hostOptions) urlsOfTenants(flags *pflag.FlagSet) (map[string]tenantURL, error) {
	urls := make(map[string]tenantURL)
	claim := func(from, tenant, form string) error {
		if !slices.Contains(o.tenants, tenant) {
			return usagef("%s: the host serves no such tenant: write TENANT=%s, with one of %s", from, form, strings.Join(o.tenants, ", "))
		}
		if _, twice := urls[tenant]; twice {
			return usagef("%s: the tenant has a URL already: leave one of them out", from)
		}
		return nil
	}
	for i, pair := range o.tenantRedis {
		from := fmt.Sprintf("%s %q", origin(flags.Lookup("tenant-redis")), o.tenantRedis.GetSlice()[i])
		tenant, url, _ := strings.Cut(pair, "=")
		if err := claim(from, tenant, "URL (a comma in a URL as %2C)"); err != nil {
			return nil, err
		}
		urls[tenant] = tenantURL{url, origin(flags.Lookup("tenant-redis"))}
	}
	for _, pair := range o.tenantRedisFiles {
		from := fmt.Sprintf("%s %q", origin(flags.Lookup("tenant-redis-file")), pair)
		tenant, path, _ := strings.Cut(pair, "=")
		if err := claim(from, tenant, "FILE"); err != nil {
			return nil, err
		}
		url, err := urlOfFile(from, path)
		if err != nil {
			return nil, err
		}
		urls[tenant] = tenantURL{url, from}
	}
	return urls, nil
}
