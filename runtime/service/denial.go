package service

import (
	"cmp"
	"errors"
	"fmt"
)

// Denial is the error of a denied capability. It says who denies the capability, and which line has to be added to
// allow it.
type Denial struct {
	// Err is the wrapped error. Default ErrDenied.
	Err error
	// What describes what the task asked for. Default "": a text that says who denies it.
	What string
	By   Denier
	// Where names the entry of the host's grants and the file of the grants. It is used for ByHost only.
	Where string
	// Add is what to add: a line of capabilities, such as kv: [{bucket: a}], or a network. If Into is not "", it is one
	// more entry there.
	Add string
	// Into names what has entries already, such as capabilities.kv. A second line with its key would be refused.
	Into string
}

// Denier says who denies a capability.
type Denier int

// The deniers.
const (
	ByManifest Denier = iota // the manifest does not ask for it
	ByHost                   // the manifest asks for it, but the host's grants do not allow it
	ByNetwork                // the address is in a network that the operator has not opened
)

// Error returns "denied: WHAT: REMEDY".
func (d *Denial) Error() string {
	by := "the manifest does not allow it"
	if d.By == ByHost {
		by = "the manifest allows it, the host does not"
	}
	return fmt.Sprintf("%v: %s: %s", d.Unwrap(), cmp.Or(d.What, by), d.Remedy())
}

// Unwrap returns Err.
func (d *Denial) Unwrap() error { return cmp.Or(d.Err, ErrDenied) }

// Remedy says what to add, and where.
func (d *Denial) Remedy() string {
	switch {
	case d.By == ByNetwork:
		return "the operator can allow the address with --allow-networks " + d.Add
	case d.By == ByHost && d.Into != "":
		return fmt.Sprintf("add %s to %s of %s", d.Add, d.Into, d.Where)
	case d.By == ByHost:
		return fmt.Sprintf("add capabilities: {%s} to %s", d.Add, d.Where)
	case d.Into != "":
		return fmt.Sprintf("add %s to %s", d.Add, d.Into)
	}
	return fmt.Sprintf("add capabilities: {%s}", d.Add)
}

// Confidential is an error whose text names addresses of the host's networks. Tenants get another text.
type Confidential struct {
	Err  error  // the error for the host's log
	Told string // the text for tenants
}

// Error returns the text for the host's log.
func (c *Confidential) Error() string { return c.Err.Error() }

// Unwrap returns Err.
func (c *Confidential) Unwrap() error { return c.Err }

// LogSaysMore ends the text of an error whose details only the host's log has.
const LogSaysMore = ": the host's log says more"

// Told returns the text of a service's error that a tenant gets. For a Confidential error, that is its Told. An
// ErrUnavailable has no details in the text, since details may name addresses and paths of the host.
func Told(err error) string {
	var c *Confidential
	switch {
	case errors.As(err, &c):
		return c.Told
	case errors.Is(err, ErrUnavailable):
		return ErrUnavailable.Error() + LogSaysMore
	}
	return err.Error()
}
