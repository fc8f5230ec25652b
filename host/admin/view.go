package admin

// View states which parts of a tenant a principal may see. The Redact methods remove the other parts.
type View struct {
	Payloads bool // texts and bytes that producers and handlers wrote
	Webhooks bool // the paths of webhooks' URLs, and the values of their headers
}
