package manifest

import (
	"strings"
	"testing"
)

const (
	recipient = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"
	// secretKey is the example of a private key in age's own documentation.
	secretKey = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"
)

// Recipients of records are read for a tenant and for all others, and reach the permissions.
func TestRecipients(t *testing.T) {
	t.Parallel()
	grants, err := ParseGrants("grants.yaml", []byte("acme: {records: {recipients: ["+recipient+"]}}\n'*': {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := Default("mail")
	for tenant, want := range map[string]int{"acme": 1, "other": 0} {
		if p := NewPermissions(&m, grants, tenant, nil); len(p.Recipients) != want {
			t.Errorf("%s has %d recipients", tenant, len(p.Recipients))
		}
	}
}

// The key in grants is records, and not record as in manifests.
func TestRecordInGrants(t *testing.T) {
	t.Parallel()
	_, err := ParseGrants("grants.yaml", []byte("acme:\n  record: {recipients: ["+recipient+"]}\n"))
	want := `grants.yaml:2: acme: unknown key "record": did you mean "records" (the bound of a record is limits.record)?`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Bad recipients are refused when grants are read, with the remedy and without the key.
func TestBadRecipients(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"{recipients: []}":                       "acme.records.recipients: is empty: name one, or leave records out",
		"{}":                                     "write recipients: [age1...]",
		"{recipients: " + recipient + "}":        "acme.records.recipients: is a text: write a list, such as [age1...]",
		"{recipients: [" + recipient[:60] + "]}": "acme.records.recipients[0]: is not a public key of age: write a public key that `age-keygen` prints; it begins with age1",
		"{recipients: [" + recipient + ", " + secretKey + "]}": "acme.records.recipients[1]: is a private key: write a public key that `age-keygen` prints",
		"{recipients: [{a: b}]}":                               "acme.records.recipients[0]: is not a public key of age",
		"{recipient: [" + recipient + "]}":                     `did you mean "recipients"?`,
	} {
		_, err := ParseGrants("grants.yaml", []byte("acme:\n  records: "+value+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretKey) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
