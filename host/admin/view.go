package admin

// View is what somebody may see of a tenant. The methods Redact take the rest out.
type View struct {
	Payloads bool // what producers and handlers wrote
	Webhooks bool // their paths and headers
}
