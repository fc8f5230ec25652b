// Package egress sends HTTP requests for guests. URLs, methods, headers and bodies come from a guest, which may be
// hostile. A request is sent if the plugin's manifest grants it and its address is public or granted by the host's
// operator.
//
//	Request ──▶ target ──▶ grants ──▶ headers ──▶ pool of the tenant ──▶ dial ──▶ server
//	            one reading  manifest,  size, set    idle connection        │ address of the
//	            of the URL   ceiling    by us        or a new one           ▼ socket: networks
//	Response ◀── cap on body ◀── cap on headers ◀────────────────────── 3xx as any other
//
// # Guarantees
//
// The manifest grants a name, the operator an address; a request needs both. The address is checked on the socket,
// after the name is resolved and before anything is sent. It does not matter how the name resolves at another time, or
// for another resolver.
//
// The URL is parsed once, strictly. The dialed address and the Host header are both written from the result, so they
// cannot disagree. Ambiguous URLs are refused.
//
// Each tenant has its own pool of connections. All requests of a client have the same networks, so an open connection
// leads nowhere that a new one could not; names and methods are checked for every request, also on open connections.
// Pools are keyed by scheme, name and port: an HTTP/2 connection is not reused for other names in its certificate.
// Plugins of one tenant share connections. Tenants do not, because a connection has state beyond its bytes: a server
// may have authenticated it (NTLM) or may be out of step on it, and one tenant could use up the connections to a host,
// or learn by timing that another one used it.
//
// Redirects are answered, not followed: a guest asks again, under its grants. Bodies are passed on as they are: only
// the guest sets Accept-Encoding, and decompresses in its own memory. Cookies are not kept. Trailers are dropped. The
// environment's proxies are ignored.
//
// Of a body that is too large, the host reads one byte over the limit. Its memory doubles as bytes come in; the
// transport reads ahead 4 KiB, or half a MiB over HTTP/2. Then the connection is closed, or the HTTP/2 stream reset.
//
// A header that makes servers see another method or origin than the request's is refused: grants are by method.
//
// An answer in very many tiny pieces, such as chunks of one byte, is abandoned: the plugin is charged for bytes, not
// for the work around them.
//
// net/http has no logger for each client: unsolicited data from servers goes to the standard logger, which the program
// configures.
//
// # Proxy
//
// With a proxy, all sockets lead to it, and its address is not checked. The target's name is resolved here before each
// request, and all its addresses must pass. The proxy gets the name and resolves it again. So the check does not cover
// a name that resolves differently for the proxy: the proxy must refuse that. A name that this host cannot resolve is
// unavailable.
//
// # Failure
//
// ErrInvalid (a malformed request), ErrDenied and ErrTooBig would be the same the next time. Everything that goes wrong
// between the host and the answer's last byte, including the timeout of one request, is ErrUnavailable. Requests with
// idempotent methods, or with an Idempotency-Key, are sent again if their connection turns out to be closed. Errors are
// for the host's log: they name hosts, addresses and networks, but no paths, queries or headers. service.Told returns
// the text for a tenant. It names no name server, no proxy, and no address except those in the URL and loopback
// addresses.
package egress
