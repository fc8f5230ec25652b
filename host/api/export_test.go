package api

// CheckUnknown changes how many unknown tokens a second are checked: a busy machine sends fewer than the bound that others have.
func (a *Access) CheckUnknown(rate float64) {
	_, i := a.current()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rate = rate
}

// JobItems changes how many tasks a job may have.
func (c *Config) JobItems(most int) { c.jobItems = most }
