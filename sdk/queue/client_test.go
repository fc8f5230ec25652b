package queue

import (
	"errors"
	"strings"
	"testing"
)

func TestConnectHidesPasswords(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"ErrPercent":   "redis://ada:s3cr%et@host:6379/0",
		"ErrSlash":     "redis://ada:s3cr/et@host:6379/0",
		"ErrPort":      "redis://ada:12/s3cret@host:6379/0",
		"ErrFragment":  "redis://ada:12#s3cret@host:6379/0",
		"ErrQuery":     "redis://ada:12?s3cret@host:6379/0",
		"ErrNoScheme":  "ada:s3cret@host:6379",
		"ErrScheme":    "http://ada:s3cret@host:6379/0",
		"ErrDatabase":  "redis://ada:s3cret@host:6379/first",
		"ErrParameter": "redis://host:6379/0?pasword=s3cret",
		"ErrSentinel":  "redis://host:6379/first?master_name=m&password=s3cret",
		"ErrPlainTLS":  "redis://ada:s3cret@host:6379/0?ca=ca.pem",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, err := Connect(url)
			if err == nil {
				_ = rdb.Close()
			}
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s: %v", url, err)
			}
			for _, part := range []string{"s3cr", "et@", ":12"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%q stands in the message: %v", part, err)
				}
			}
		})
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://host:6379/0":                                          "redis://host:6379/0",
		"redis://ada:s3cret@host:6379/0":                               "redis://ada:xxxxx@host:6379/0",
		"rediss://:s3cret@host/0?ca=ca.pem":                            "rediss://:xxxxx@host/0?ca=ca.pem",
		"unix://ada:s3cret@/run/redis.sock?db=1":                       "unix://ada:xxxxx@/run/redis.sock?db=1",
		"redis://:s3cret@host/0?master_name=m&username=q&password=t0p": "redis://:xxxxx@host/0?master_name=m&password=xxxxx&username=q",
		"redis://ada:s3/cret@host:6379/0":                              "xxxxx",
	} {
		if got := Redact(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
