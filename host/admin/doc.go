// Package admin is what operators see and change of a tenant, whichever way they come: the API and the page serve it, and the command
// line works on it by Redis or by the API.
//
// Its types have the names of the API and of -o json: times in seconds since the epoch, durations in fields that end in _seconds,
// sizes in bytes; missing values are left out. The tags doc, enum and the like are those of the API's schema. What not everybody may
// see, a type's method Redact takes out.
package admin
