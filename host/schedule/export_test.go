package schedule

// Measure measures the cache once.
func (e *Evictor) Measure() { e.measure() }
