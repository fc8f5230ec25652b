package admin

// View says what a principal may see of a tenant. The methods Redact remove the rest.
type View struct {
	Payloads bool // what producers and handlers wrote
	Webhooks bool // their paths and headers
}
