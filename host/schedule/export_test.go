package schedule

// Measure measures the cache once.
func (e *Evictor) Measure() { e.measure() }

// MaxCredit is what a tenant can save at most.
const MaxCredit = maxCredit
