// Package admin has the operations that operators run on a tenant, and the types in which they see its tasks, queues,
// topics and listeners. The API and the page serve these operations; the command line calls them through Redis or
// through the API.
//
// The types have the field names of the API and of -o json. Times are seconds since the epoch, durations are in fields
// whose names end in _seconds, sizes are bytes, and missing values are left out. The tags doc, enum and the like belong
// to the API's schema. The method Redact of a type removes what a principal may not see.
package admin
