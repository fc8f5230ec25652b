package doctor

var queueChecks = []check{
	{"queues-many", func(p *patient) (f []Finding) {
		if most := p.maxQueues; most > 0 && len(p.queues) > most {
			f = append(f, found(Warning, "find who enqueues to so many, or raise --max-queues of the hosts: nothing else makes a new one until there are fewer",
				"the tenant has %d queues and may have %d: hosts look at the others in turn, and metrics leave them out", len(p.queues), most))
		}
		return f
	}},
}
