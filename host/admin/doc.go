// Package admin has what operators see and change of a tenant. The API and the page serve it; the command line uses it
// through Redis or through the API.
//
// The types have the field names of the API and of -o json: times in seconds since the epoch, durations in fields that
// end in _seconds, sizes in bytes; missing values are left out. The tags doc, enum and the like belong to the API's
// schema. A type's method Redact removes what a principal may not see.
package admin
