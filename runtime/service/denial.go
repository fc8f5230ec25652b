package service

import "fmt"

// Denial is the error of what a task may not do: who denies it, and what to add so that it may. All denials that name such a
// line are made of it, so that they read alike.
type Denial struct {
	// Err is what it wraps. Default ErrDenied.
	Err error
	// What the task asked for, if the text is to say more than who denies it.
	What string
	By   Denier
	// Place is where the host's grants stand, for ByHost.
	Place string
	// Add is what to add: an entry of capabilities, such as kv: [{bucket: a}], or a network.
	Add string
}

// Denier is who denies something.
type Denier int

// ByManifest: the plugin's manifest does not ask for it. ByHost: the manifest does, and the host's grants do not allow it.
// ByNetwork: the address belongs to a network that the operator has not opened.
const (
	ByManifest Denier = iota
	ByHost
	ByNetwork
)

// Error says "denied: WHAT: REMEDY".
func (d *Denial) Error() string {
	what := d.What
	switch {
	case what != "":
	case d.By == ByHost:
		what = "the manifest allows it, the host does not"
	default:
		what = "the manifest does not allow it"
	}
	return fmt.Sprintf("%v: %s: %s", d.Unwrap(), what, d.Remedy())
}

// Unwrap returns Err.
func (d *Denial) Unwrap() error {
	if d.Err == nil {
		return ErrDenied
	}
	return d.Err
}

// Remedy says what to add, and where.
func (d *Denial) Remedy() string {
	switch d.By {
	case ByHost:
		return fmt.Sprintf("add capabilities: {%s} to %s", d.Add, d.Place)
	case ByNetwork:
		return "the operator has to grant the network " + d.Add
	}
	return fmt.Sprintf("add capabilities: {%s}", d.Add)
}
