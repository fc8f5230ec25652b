// Package webhook delivers publications to the URLs of subscriptions, without a plugin.
//
//	topic ── publish ──▶ task in webhook.SUBSCRIPTION ──▶ Runner ── HTTP ──▶ server
//	                          ▲        ▲                    │  a response that is expected: complete
//	                          │        └── 429, Retry-After ┤  later, no attempt counted
//	                          └─────────── other failures ──┤  later, by the policy
//	                             subscription switched off ◀┘  410
//
// A delivery is an ordinary task: attempts, results, dead letters, pauses, cancels and purges are those of every task. A Runner
// is a listener of its own beside the host's: a delivery that waits for a slow server holds none of the host's slots. It has
// places for so many requests at a time, in all and to each destination; what has no place waits in Redis.
//
// # What happens when things fail
//
// A host that dies leaves its deliveries in its reserved lists, and another one takes them, as with every listener; the server
// may get such a delivery twice, with the same webhook-id. A destination that fails ten times in a row is switched off for a
// while: its deliveries wait in Redis and lose no attempt. One delivery then tries whether it is back. When the runner is to
// end it takes nothing more, waits for the grace period and gives the rest back.
package webhook
