// Package pipeline has three handlers that work together: split, count and merge. Its tests run all of them on a host.
//
//	document ──▶ split ──▶ count, count, count ──▶ merge ──▶ report
package pipeline
