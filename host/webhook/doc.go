// Package webhook delivers publications to the URLs of subscriptions, without a plugin.
//
//	topic ── publish ──▶ task in webhook.SUBSCRIPTION ──▶ Runner ── HTTP ──▶ server
//	                          ▲        ▲                    │  a response that is expected: complete
//	                          │        └── 429, Retry-After ┤  later, no attempt counted
//	                          └─────────── other failures ──┤  later, by the retry policy
//	                             subscription switched off ◀┘  410
//
// A delivery is an ordinary task: attempts, results, dead letters, pauses, cancels and purges work as for every task. A
// Runner has a listener besides the host's, so that a delivery that waits for a slow server takes none of the host's
// slots. The Runner bounds the number of concurrent requests, in all and to each destination. Deliveries beyond these
// bounds wait in Redis.
//
// # What happens when things fail
//
// A host that dies leaves its deliveries in its reserved lists, and another host takes them, as with every listener.
// The server may then get a delivery twice, with the same webhook-id. A destination that fails ten times in a row is
// switched off for a while: its deliveries wait in Redis and lose no attempt. After that time, one delivery tests
// whether the destination works again. When the Runner is to end, it reserves nothing more, waits for running
// deliveries for the grace period, and then returns unfinished deliveries to their queues.
package webhook
