package dashboards

func host() Dashboard {
	variables := []Variable{job, instances}
	s := scopeOf(variables)
	on := func(expr string) []Query { return ask(expr, "{{instance}}") }
	return Dashboard{
		Name: "host", Title: "Host", Variables: variables,
		Description: "One host, or several: slots, memory, instances, its calls to Redis, and the process.",
		Rows: []Row{
			{"Now", []Panel{
				number("Up for", Seconds,
					"Since the host's start.",
					on("time() - max by (instance) ("+s.of("process_start_time_seconds")+")")),
				number("Version", Count,
					"Of Quern, on each host.",
					ask("max by (instance, version) ("+s.of("quern_build_info")+")", "{{version}}")).named(),
				number("Slots in use", Share,
					"Part of the slots that run a task.",
					on("max by (instance) ("+s.of("quern_slots_in_use")+") / max by (instance) ("+s.of("quern_slots")+")")).limits(0.8,
					0.95),
				number("Waiting for memory", Share,
					"Part of the time in which a slot was free and a task waited for memory.",
					on(s.rate("instance", "quern_memory_wait_seconds_total"))).limits(0.1, 0.5),
				number("Tenants it serves", Count,
					"Tenants that Redis lets it serve.",
					on("sum by (instance) ("+s.of("quern_tenant_up")+")")),
				number("Clock", Seconds,
					"Its clock less that of Redis.",
					on("max by (instance) ("+s.of("quern_clock_skew_seconds")+")")),
			}},
			{"Work", []Panel{
				chart("Slots", Count,
					"--concurrency, and the tasks that it runs.",
					[]Query{
						{sum("instance", s.of("quern_slots")), "{{instance}} slots", false},
						{sum("instance", s.of("quern_slots_in_use")), "{{instance}} in use", false},
					}),
				chart("Runs by outcome", PerSecond,
					"What became of the runs on this host.",
					ask(s.rate("outcome", "quern_tasks_total", `outcome!=""`), "{{outcome}}")).stacked(),
				chart("CPU of tasks", Seconds,
					"CPUs that the plugins keep busy: seconds a second.",
					ask(top(s.rate("plugin", "quern_task_cpu_seconds_total", `plugin!=""`)), "{{plugin}}")).stacked(),
			}},
			{"Memory", []Panel{
				chart("Limit and use", Bytes,
					"Memory that is reserved for running tasks, with what plugins hold beside. At the limit, tasks wait.",
					[]Query{
						{sum("instance", s.of("quern_memory_limit_bytes")), "{{instance}} --memory", false},
						{sum("instance", s.of("quern_memory_reserved_bytes")) + "\n+\n" +
							sum("instance", s.of("quern_runtime_held_bytes")), "{{instance}} taken", false},
					}),
				chart("Held by plugins", Bytes,
					"Beyond the limits of running tasks: machine code, snapshots, idle instances, call stacks. The host frees idle ones when tasks need the memory.",
					ask(sum("kind", s.of("quern_runtime_held_bytes")), "{{kind}}")).stacked(),
				chart("Instances", Count,
					"busy with a task, or idle and ready for the next one.",
					ask(sum("state", s.of("quern_instances")), "{{state}}")).stacked(),
			}},
			{"Host functions", []Panel{
				chart("Calls", PerSecond,
					"Calls of plugins to this host.",
					ask(orZero(top(s.rate("function", "quern_host_calls_total"))), "{{function}}")),
				chart("Bytes", ByteRate,
					"What these calls moved, in and out.",
					ask(orZero(top(s.rate("function", "quern_host_call_bytes_total"))), "{{function}}")),
				chart("Lines of its own log dropped", Count,
					"The reader of its stderr is too slow.",
					on(s.increase("instance", "quern_host_log_lines_dropped_total"))),
			}},
			{"Redis", append(redisPanels(s),
				chart("Late renewals of leases", Count,
					"Renewals that came later than two thirds of the lease: the host was stopped, starved or cut off.",
					on(s.increase("instance", "quern_lease_renewals_late_total"))),
			)},
			{"Process", []Panel{
				chart("CPU", Seconds,
					"CPUs that the process keeps busy, tasks with all else.",
					on(s.rate("instance", "process_cpu_seconds_total"))),
				chart("Memory", Bytes,
					"Resident memory.",
					on("max by (instance) ("+s.of("process_resident_memory_bytes")+")")),
				chart("Goroutines", Count,
					"About as many as tasks run; steady growth is a leak.",
					on("max by (instance) ("+s.of("go_goroutines")+")")),
				chart("Open files", Count,
					"Files and connections.",
					on("max by (instance) ("+s.of("process_open_fds")+")")),
			}},
		},
	}
}
