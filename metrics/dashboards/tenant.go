package dashboards

func tenant() Dashboard {
	variables := []Variable{job, tenants}
	s := scopeOf(variables)
	finished := `outcome=~"complete|failed"`
	return Dashboard{
		Name: "tenant", Title: "Tenant", Variables: variables,
		Description: "What each tenant's tasks do and use: whether it is served, its queues, failures, CPU and fuel.",
		Rows: []Row{
			{"Now", []Panel{
				number("Hosts that serve it", Count,
					"Hosts that Redis lets serve the tenant.",
					ask(sum("tenant", s.of("quern_tenant_up")), "{{tenant}}")),
				number("Queues", Count,
					"Queues with metrics.",
					ask("count by (tenant) (max by (tenant, queue) ("+s.of("quern_queue_depth", `state="pending"`)+"))", "{{tenant}}")),
				number("Queues without metrics", Count,
					"Queues beyond --max-queues: no alert fires for them.",
					ask("max by (tenant) ("+s.of("quern_queues_hidden")+")", "{{tenant}}")).limits(1, 0),
				number("Pending tasks", Count,
					"Tasks that could start now.",
					ask(s.alike("tenant", "quern_queue_depth", `state="pending"`), "{{tenant}}")),
				number("Oldest pending task", Seconds,
					"How long the task that has waited longest waits.",
					ask("max by (tenant) ("+s.of("quern_queue_oldest_pending_age_seconds")+")", "{{tenant}}")).limits(60, 600),
				number("Failed", Share,
					"Part of the finished tasks that failed for good.",
					ask("("+s.rate("tenant", "quern_tasks_total", `outcome="failed"`)+" or 0 * "+s.rate("tenant", "quern_tasks_total")+")\n/\n"+s.rate("tenant", "quern_tasks_total", finished), "{{tenant}}")).limits(0.01, 0.5),
			}},
			{"Work", []Panel{
				chart("Tasks", PerSecond,
					"Tasks that were complete or failed for good.",
					ask(s.rate("tenant, outcome", "quern_tasks_total", finished), "{{tenant}} {{outcome}}")).stacked(),
				chart("Failures by reason", PerSecond,
					"Runs that failed, those that are tried again too.",
					ask(orZero(s.rate("tenant, reason", "quern_tasks_total", `outcome=~"failed|retried"`)), "{{tenant}} {{reason}}")).stacked(),
				chart("Wait", Seconds,
					"From pending to the start.",
					s.latency("tenant", "{{tenant}}", "quern_task_wait_seconds")),
				chart("Busiest queues", PerSecond,
					"Click a series to see its queue.",
					ask(top(s.rate("tenant, queue", "quern_tasks_total", finished)), "{{tenant}}/{{queue}}")).leadsTo("queue", "tenant", "queue"),
				chart("Longest queues", Count,
					"Pending tasks of the ten queues with most.",
					ask(top(s.alike("tenant, queue", "quern_queue_depth", `state="pending"`)), "{{tenant}}/{{queue}}")).leadsTo("queue", "tenant", "queue"),
				chart("Dead letters", Count,
					"Tasks that failed for good, and whose dead letter nobody has handled.",
					ask(orZero(top(s.alike("tenant, queue", "quern_queue_dead_letters"))), "{{tenant}}/{{queue}}")).leadsTo("queue", "tenant", "queue"),
			}},
			{"Use", []Panel{
				chart("CPU", Seconds,
					"CPUs that the tasks keep busy: seconds a second.",
					ask(s.rate("tenant", "quern_task_cpu_seconds_total"), "{{tenant}}")).stacked(),
				chart("Fuel", PerSecond,
					"About one unit per instruction: the same work uses the same fuel on every machine.",
					ask(s.rate("tenant", "quern_task_fuel_total"), "{{tenant}}")).stacked(),
				number("Fuel in the time shown", Count,
					"To bill by: pick the month above.",
					ask("sum by (tenant) (increase("+s.of("quern_task_fuel_total")+"[$__range]))", "{{tenant}}")).wide(8),
			}},
			{"Schedules", []Panel{
				chart("Ticks of schedules", Count,
					"fired: a task was enqueued. skipped: the task before had not finished. missed: no host was there.",
					ask(s.increase("tenant, result", "quern_schedule_ticks_total"), "{{tenant}} {{result}}")).stacked(),
				chart("Late ticks", Count,
					"Tasks of schedules that were enqueued more than a second after their tick.",
					ask(s.increase("tenant", "quern_schedule_late_seconds_count")+"\n-\n"+
						s.increase("tenant", "quern_schedule_late_seconds_bucket", `le=~"1|1[.]0"`), "{{tenant}}")),
			}},
			{"Problems", []Panel{
				chart("Tasks taken from dead hosts", Count,
					"Tasks of hosts whose lease ended. failed means that a task lost one host too many.",
					ask(s.increase("tenant, outcome", "quern_tasks_reclaimed_total"), "{{tenant}} {{outcome}}")),
				chart("Late renewals of leases", Count,
					"Renewals that came later than two thirds of the lease.",
					ask(s.increase("tenant", "quern_lease_renewals_late_total"), "{{tenant}}")),
			}},
		},
	}
}
