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
// The manifest grants a name and the operator an address; a request needs both. The address is checked on the socket,
// after the name is resolved and before anything is sent. It does not matter how the name resolves at another time, or
// for another resolver.
//
// The URL is parsed once, strictly. The dialed address and the Host header are both written from the result, so they
// cannot disagree. Ambiguous URLs are refused.
//
// Each tenant has its own pool of connections. All requests of a client are checked against the same networks, so an
// open connection leads nowhere that a new connection could not lead. Config.Loopback, which is for development on one
// machine, adds an exception for one origin. Names and methods are checked for every request, also on open connections.
// Pools are keyed by scheme, name and port: an HTTP/2 connection is not reused for other names in its certificate.
// Plugins of one tenant share connections. Tenants do not share connections, because a server keeps state for each
// connection: it can have authenticated the connection (NTLM), or be out of step on it. Also, one tenant could use up
// the connections to a host, or learn by timing that another tenant used that host.
//
// Redirects are returned to the guest, not followed: a guest that follows one sends another request, which needs a
// grant. Bodies are passed on unchanged: only the guest sets Accept-Encoding, and it decompresses in its own memory.
// Cookies are not kept. Trailers are dropped. Proxies that environment variables name are ignored.
//
// A body that is too large is read up to one byte over the limit. Then the connection is closed, or the HTTP/2 stream
// is reset. The memory for a body doubles as bytes come in. In addition, the transport reads ahead 4 KiB, or half a MiB
// over HTTP/2.
//
// A header that makes servers see a method or origin other than the request's is refused, because grants name methods.
//
// An answer that comes in very many tiny pieces, such as chunks of one byte, is abandoned: the plugin is charged for
// bytes, not for the work on each piece.
//
// net/http has no logger per client. It reports unsolicited data from servers to the standard logger, which the program
// configures.
//
// # Proxy
//
// With a proxy, all sockets lead to the proxy, whose address is not checked. This host resolves the target's name
// before each request, and checks all addresses of the name. The proxy gets the name and resolves it again. If the name
// resolves differently for the proxy, the check does not cover those addresses: the proxy must refuse them. A name that
// this host cannot resolve is ErrUnavailable.
//
// # Failure
//
// A request that fails with ErrInvalid (it is malformed), ErrDenied or ErrTooBig would fail in the same way again.
// Everything that goes wrong between the host and the answer's last byte, including the timeout of one request, is
// ErrUnavailable. Requests with idempotent methods, or with an Idempotency-Key, are sent again if their connection
// turns out to be closed. Errors are for the host's log: they name hosts, addresses and networks, but no paths, queries
// or headers. service.Told returns the text for a tenant. This text names no name server, no proxy, and no address
// except those in the URL and loopback addresses.
package egress
