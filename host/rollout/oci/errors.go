package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

var errStalled = fmt.Errorf("no byte arrived for %s", stallTime)

// explain returns an error that names the artifact and what was wanted of it. It leaves out what the registry wrote,
// and the queries of URLs, because redirects have signatures in them.
func explain(ctx context.Context, ref Reference, what string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		err = cause
	}
	about := func(format string, args ...any) error {
		return fmt.Errorf("%s of %s: "+format, append([]any{what, shown(ref)}, args...)...)
	}
	answer, answered := errors.AsType[*errcode.ErrorResponse](err)
	switch {
	case errors.Is(err, auth.ErrBasicCredentialNotFound), answered && answer.StatusCode == http.StatusUnauthorized,
		answered && answer.StatusCode == http.StatusForbidden:
		return about("the registry refuses access: give credentials for %s with --registry-config FILE, as docker login writes them", ref.Registry)
	case errors.Is(err, errdef.ErrNotFound), answered && answer.StatusCode == http.StatusNotFound:
		return about("the registry does not have it: push it again, or see the name")
	case answered:
		return about("the registry answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return about("%w", &failure{err})
}

// failure is an error whose text has no queries of URLs.
type failure struct{ error }

var query = regexp.MustCompile(`\?[^\s"]+`)

func (f *failure) Error() string { return query.ReplaceAllString(f.error.Error(), "") }

func (f *failure) Unwrap() error { return f.error }
