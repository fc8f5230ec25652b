package dashboards

func queue() Dashboard {
	variables := []Variable{job, tenants, queues}
	s := scopeOf(variables)
	recorded := scopeOf(variables[1:])
	now := func(title, family, matcher string, bad float64, description string) Panel {
		return number(title, Count, description, ask(orZero(s.alike("", family, matcher)), title)).wide(3).limits(0, bad)
	}
	return Dashboard{
		Name: "queue", Title: "Queue", Variables: variables,
		Description: "One queue, or several: what waits in it and for how long, what runs, what fails and why.",
		Rows: []Row{
			{"Now", []Panel{
				now("Pending", "quern_queue_depth", `state="pending"`, 0, "Tasks that could start now."),
				now("Running", "quern_queue_depth", `state="started"`, 0, "Tasks that hosts and workers run."),
				number("Oldest pending task", Seconds,
					"How long the task that has waited longest waits.",
					ask("max("+s.of("quern_queue_oldest_pending_age_seconds")+")", "age")).wide(3).limits(60, 600),
				now("Listeners", "quern_queue_listeners", `queue!=""`, 0,
					"Hosts and workers that take tasks. With none, tasks wait."),
				now("Dead letters", "quern_queue_dead_letters", `queue!=""`, 1,
					"What waits in the queue as letters of tasks that failed for good: pick the queue that manifests name as dead."),
				now("Paused", "quern_queue_paused", `queue!=""`, 1, "Queues that somebody paused: `quern queue resume`."),
				now("Quarantined", "quern_queue_quarantined", `queue!=""`, 1,
					"Queues whose plugin ended several hosts, or whose circuit breaker is open: `quern plugin release`."),
				number("Within the objective, 6 h", Share,
					"Part of the time in which the oldest task was younger than the objective, of 99 %. Needs rules.yml.",
					ask("1 - avg("+recorded.of("tenant_queue:quern_queue_late:avg6h")+")", "in time")).wide(3),
			}},
			{"Work", []Panel{
				chart("Tasks that are not finished", Count,
					"By state. scheduled wait for their time or their next attempt; reserved are held by a host and have not started.",
					ask(s.alike("state", "quern_queue_depth", `state!~"complete|failed"`), "{{state}}")).stacked(),
				chart("Finished tasks that are kept", Count,
					"Until they are purged, by --keep and --keep-tasks.",
					ask(orZero(s.alike("state", "quern_queue_depth", `state=~"complete|failed"`)), "{{state}}")),
				chart("Oldest pending task", Seconds,
					"The line is the objective of rules.yml.",
					ask("max by (tenant, queue) ("+s.of("quern_queue_oldest_pending_age_seconds")+")",
						"{{tenant}}/{{queue}}")).limits(0, 600),
				chart("Runs by outcome", PerSecond,
					"On all hosts. retried and rescheduled run again.",
					ask(s.rate("outcome", "quern_tasks_total"), "{{outcome}}")).stacked(),
				chart("Failures by reason", PerSecond,
					"error: the plugin says so; trap: it crashed; timeout, memory, cpu and output: a limit. `quern help errors` lists all.",
					ask(orZero(s.rate("reason", "quern_tasks_total", `outcome=~"failed|retried"`)), "{{reason}}")).stacked(),
				chart("CPU", Seconds,
					"CPUs that the tasks keep busy: seconds a second.",
					ask(s.rate("tenant, queue", "quern_task_cpu_seconds_total"), "{{tenant}}/{{queue}}")),
				chart("Wait", Seconds,
					"From pending to the start. Points are single tasks: click one for its trace.",
					s.latency("tenant, queue", "{{tenant}}/{{queue}}", "quern_task_wait_seconds")).wide(12),
				chart("Duration", Seconds,
					"From the start to the outcome. Points are single tasks: click one for its trace.",
					s.latency("tenant, queue", "{{tenant}}/{{queue}}", "quern_task_duration_seconds")).wide(12),
			}},
			{"Problems", []Panel{
				chart("Outcomes that Redis refused", Count,
					"The host had lost the task: work was done twice.",
					ask(orZero(s.increase("tenant, queue", "quern_results_refused_total")), "{{tenant}}/{{queue}}")),
				chart("Tasks that were missing", Count,
					"IDs in the queue whose task was deleted or already finished.",
					ask(orZero(s.increase("tenant, queue", "quern_tasks_dropped_total")), "{{tenant}}/{{queue}}")),
				chart("Log lines dropped", Count,
					"Tasks logged faster than Redis took it, or more than limits.log.",
					ask(orZero(s.increase("tenant, queue", "quern_log_lines_dropped_total")), "{{tenant}}/{{queue}}")),
			}},
		},
	}
}
