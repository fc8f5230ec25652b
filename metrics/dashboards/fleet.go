package dashboards

func fleet() Dashboard {
	variables := []Variable{job}
	s := scopeOf(variables)
	finished := `outcome=~"complete|failed"`
	return Dashboard{
		Name: "fleet", Title: "Fleet", Variables: variables,
		Description: "All hosts together: whether tasks run, what waits, what fails, and how the hosts and Redis are.",
		Rows: []Row{
			{"Now", []Panel{
				number("Hosts", Count,
					"Hosts that Prometheus scrapes.",
					ask("count("+s.of("quern_build_info")+")", "hosts")).wide(3),
				number("Alerts", Count,
					"Alerts of alerts.yml that fire.",
					ask(orZero(`count(ALERTS{alertname=~"Quern.+",alertstate="firing"})`), "firing")).limits(0, 1),
				number("Slots in use", Share,
					"Part of all slots that run a task. With all in use, tasks wait for others to end.",
					ask(sum("", s.of("quern_slots_in_use"))+" / "+sum("", s.of("quern_slots")), "in use")).limits(0.8, 0.95),
				number("Pending tasks", Count,
					"Tasks that could start now.",
					ask(s.alike("", "quern_queue_depth", `state="pending"`), "pending")),
				number("Oldest pending task", Seconds,
					"How long the task that has waited longest waits, without paused queues and dead letters.",
					ask("max("+s.oldest()+")", "age")).limits(60, 600),
				number("Tasks a second", PerSecond,
					"Tasks that were complete or failed for good.",
					ask(s.rate("", "quern_tasks_total", finished), "finished")),
				number("Failed", Share,
					"Part of the finished tasks that failed for good.",
					ask("("+orZero(s.rate("", "quern_tasks_total", `outcome="failed"`))+") / "+
						s.rate("", "quern_tasks_total", finished), "failed")).limits(0.01, 0.5),
			}},
			{"Work", []Panel{
				chart("Runs by outcome", PerSecond,
					"What became of runs of tasks. retried and rescheduled run again; released were given back without a run; lost were taken by another host.",
					ask(s.rate("outcome", "quern_tasks_total", `outcome!=""`), "{{outcome}}")).stacked(),
				chart("Failures by reason", PerSecond,
					"Runs that failed, those that are tried again too.",
					ask(orZero(s.rate("reason", "quern_tasks_total", `outcome=~"failed|retried"`)), "{{reason}}")).stacked(),
				chart("Busiest queues", PerSecond,
					"Tasks that were complete or failed, of the ten queues with most. Click a series to see its queue.",
					ask(top(s.rate("tenant, queue", "quern_tasks_total", finished)), "{{tenant}}/{{queue}}")).leadsTo("queue",
					"tenant", "queue"),
				chart("Longest queues", Count,
					"Pending tasks of the ten queues with most.",
					ask(top(s.alike("tenant, queue", "quern_queue_depth", `state="pending"`)),
						"{{tenant}}/{{queue}}")).leadsTo("queue", "tenant", "queue"),
				chart("Oldest pending task by queue", Seconds,
					"How long the oldest task waits, of the ten queues that are latest. The line is the objective of rules.yml.",
					ask(top("max by (tenant, queue) ("+s.oldest()+")"), "{{tenant}}/{{queue}}")).limits(0, 600).leadsTo("queue",
					"tenant", "queue"),
				chart("Wait", Seconds,
					"From pending to the start. Classic histograms have few buckets and tell the order of magnitude; --native-histograms makes it exact to 10 %. Points are single tasks: click one for its trace.",
					s.latency("", "", "quern_task_wait_seconds")),
			}},
			{"Hosts", []Panel{
				table("Hosts",
					"What runs where. More than one version means that an upgrade is under way, or has stopped.",
					ask("max by (job, instance, host, version, revision, go) ("+s.of("quern_build_info")+")", "")).wide(16),
				chart("Slots", Count,
					"Most tasks that the hosts run at once, and those that they run.",
					[]Query{{sum("", s.of("quern_slots")), "slots", false}, {sum("", s.of("quern_slots_in_use")), "in use", false}}),
				chart("Tasks taken from dead hosts", Count,
					"Tasks of hosts whose lease ended. failed means that a task lost one host too many: it may be what ends them.",
					ask(s.increase("outcome", "quern_tasks_reclaimed_total", `outcome!=""`), "{{outcome}}")),
				chart("Late renewals of leases", Count,
					"Renewals that came later than two thirds of the lease. Later still, other hosts take the tasks.",
					ask(s.increase("instance", "quern_lease_renewals_late_total"), "{{instance}}")).leadsTo("host", "instance"),
				chart("Clocks", Seconds,
					"Each host's clock less that of Redis.",
					ask("max by (instance) ("+s.of("quern_clock_skew_seconds")+")", "{{instance}}")).leadsTo("host", "instance"),
			}},
			{"Redis", redisPanels(s)},
			{"Databases of handlers", []Panel{
				chart("Connections", Count,
					"A task that finds no free one waits 5 s, and is then put off. The bound is --database-connections of each host.",
					[]Query{
						{sum("state", s.of("quern_sql_connections")), "{{state}}", false},
						{"sum(" + s.of("quern_sql_connections_max") + ")", "at most", false},
						{"max(" + s.of("quern_sql_databases_away") + ")", "databases away", false},
					}),
				chart("Waiting for connections", Count,
					"Tasks that wait for a connection, or for one to be opened.",
					ask("sum(rate("+s.of("quern_sql_wait_seconds_total")+"[$__rate_interval]))", "tasks")),
				chart("Statements", PerSecond,
					"By result: an error is one of the database, such as a violated constraint.",
					ask(s.rate("result", "quern_sql_statements_total"), "{{result}}")),
				chart("Commits", PerSecond,
					"After one whose result is unknown the host asks the database.",
					ask(s.rate("result", "quern_sql_commits_total"), "{{result}}")),
			}},
			{"Relays", []Panel{
				chart("Oldest row that waits", Seconds,
					"Age of the oldest row of an application's database that is no task yet.",
					ask("max by (source) ("+s.of("quern_relay_lag_seconds")+")", "{{source}}")).limits(1, 60),
				chart("Rows", PerSecond,
					"Rows that became tasks, rows that could not, and ends that were written back.",
					ask(s.rate("source, result", "quern_relay_rows_total"), "{{source}} {{result}}")),
				chart("Relays that lead", Count,
					"One leads each source. Without notifications it looks for rows once a second.",
					[]Query{
						{sum("source", s.of("quern_relay_leads")), "{{source}}", false},
						{sum("source", s.of("quern_relay_notified")), "{{source}} is notified", false},
					}),
				chart("Failures of relays", PerSecond,
					"Of the database, of Redis, or of a full queue. Rows wait; none is lost.",
					ask(s.rate("source", "quern_relay_errors_total"), "{{source}}")),
			}},
		},
	}
}

// redisPanels returns the panels about Redis, which are the same for the fleet and for single hosts.
func redisPanels(s scope) []Panel {
	used := func(family, legend string) Query {
		return Query{"max by (redis) (" + s.of(family, `redis!=""`) + ")", legend + " {{redis}}", false}
	}
	return []Panel{
		chart("Memory of Redis", Bytes,
			"When maxmemory is reached, nothing can be enqueued. 0 is no limit. Needs +info for the hosts' Redis user.",
			[]Query{used("quern_redis_memory_used_bytes", "used"), used("quern_redis_memory_max_bytes", "maxmemory")}),
		chart("Failed calls to Redis", PerSecond,
			"By purpose. Hosts retry; nothing is lost.",
			ask(s.rate("op", "quern_redis_errors_total"), "{{op}}")),
		chart("Round trip to Redis", Seconds,
			"Time of one answer at the last scrape.",
			ask("max by (instance) ("+s.of("quern_redis_round_trip_seconds", `redis!=""`)+")", "{{instance}}")).limits(0.005, 0),
	}
}
