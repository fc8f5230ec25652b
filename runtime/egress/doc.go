// Package egress is what guests may send over HTTP. It is given URLs, methods, headers and bodies that a
// guest wrote, who may be hostile, and sends on what the plugin's manifest grants, to addresses that are
// public or that the host's operator grants.
//
//	Request ──▶ target ──▶ grants ──▶ headers ──▶ pool of the tenant ──▶ dial ──▶ server
//	            one reading  manifest,  size, set    idle connection        │ address of the
//	            of the URL   ceiling    by us        or a new one           ▼ socket: networks
//	Response ◀── cap on body ◀── cap on headers ◀────────────────────── 3xx as any other
//
// # What holds
//
// A name is granted by the manifest, an address by the operator, and a request needs both. The address is
// checked on the socket, after the name was resolved and before anything is sent: what a name resolves to at
// another time, or for another resolver, does not matter.
//
// The URL is read once, strictly, and what is dialled and what stands in the Host header are written from that
// reading, so that there are no two opinions on where it leads. What has several readings is refused.
//
// Connections are pooled for each tenant. The networks are the same for all requests of a client, so that an
// open connection leads nowhere that a new one could not; which names and methods a plugin may ask for is
// checked for every request, whether its connection is open already or not. A pool leads by scheme, name and
// port: HTTP/2 connections are not used for other names that their certificate has. Plugins of one tenant share
// connections; tenants do not, because a connection may hold more than bytes: a server may have authenticated
// it (NTLM), or may have fallen out of step on it, and one tenant could take all that there may be to a host,
// or see by its speed that another one was there.
//
// Redirects are answered, not followed: a guest asks again, under its grants. Bodies are as they came. No
// Accept-Encoding is sent that the guest did not write, and what it asked for it decompresses itself, within its
// own memory. Cookies are not kept. Trailers are dropped. The environment's proxies mean nothing.
//
// Of a body that is too large, one byte more is read than there may be, and memory grows by doubling with what has come;
// beside that there is what the transport reads ahead: 4 KiB, or half a MiB over HTTP/2. Then the connection is closed,
// and over HTTP/2 the stream reset.
//
// A header that makes servers read another method or origin than the request's is refused: grants are by method.
//
// An answer that comes in very many tiny pieces, as chunks of one byte, is given up, for its bytes are on the plugin's
// account and the work around them is on nobody's.
//
// net/http has no logger of a client's own: it writes to the standard one what a server sends that nobody asked for. Who
// runs a Client says where that goes.
//
// # Proxy
//
// With a proxy every request goes through it, and the sockets lead to the proxy alone, whose address is not
// checked. The target's name is resolved here before each request, and each of its addresses has to pass, but
// the proxy is asked by name, and resolves it again. So the check holds for what the name meant to this host at
// that time, and not against a name that means something else to the proxy: that is for the proxy to refuse. A
// name that this host cannot resolve is unavailable.
//
// # Failure
//
// What the guest wrote wrongly is ErrInvalid, what it may not do ErrDenied, what is too large ErrTooBig: these
// three are the same the next time. Whatever goes wrong between the host and the answer's last byte, the time for
// one request included, is ErrUnavailable. Requests by idempotent methods, or with an Idempotency-Key, are sent again, once the
// connection that they were sent on turns out to be closed. Errors are for the host's log: they name hosts,
// addresses and networks, which a guest need not see, but neither paths nor queries nor headers.
package egress
