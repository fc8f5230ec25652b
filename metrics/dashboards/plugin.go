package dashboards

func plugin() Dashboard {
	variables := []Variable{job, plugins}
	s := scopeOf(variables)
	calls := scopeOf(variables[:1])
	perTask := func(counter string) string {
		return s.rate("plugin", counter) + "\n/\n(" + s.rate("plugin", "quern_tasks_total", `outcome!~"released|lost"`) +
			" > 0)"
	}
	return Dashboard{
		Name: "plugin", Title: "Plugin", Variables: variables,
		Description: "What serves: versions, refused files, and what the tasks of a plugin take and become.",
		Rows: []Row{
			{"Now", []Panel{
				number("Plugins that serve", Count,
					"Plugins that at least one host serves.",
					ask("count(count by (tenant, plugin) ("+s.of("quern_plugin_info")+" == 1))", "plugins")),
				number("Most versions of one plugin", Count,
					"More than one: the hosts do not serve the same file.",
					ask("max(count by (tenant, plugin) (count by (tenant, plugin, version, digest) ("+s.of("quern_plugin_info")+
						" == 1)))", "versions")).limits(2, 0),
				number("Refused", Count,
					"Plugins with a file that a host refuses now: `quern plugin ls` says why.",
					ask(orZero("count(count by (tenant, plugin) ("+s.of("quern_plugin_refused")+" == 1))"), "refused")).limits(0, 1),
				number("Stopped releases", Count,
					"Plugins with a bad release that hosts stopped: `quern plugin releases NAME` says why.",
					ask(orZero("count(count by (tenant, plugin) ("+s.of("quern_release_stopped")+" == 1))"), "stopped")).limits(0, 1),
				chart("Tasks beside a canary", PerSecond,
					"While a plugin has a canary: its tasks and those of the release that serves, by outcome.",
					ask(s.rate("plugin, release, outcome", "quern_release_tasks_total"), "{{plugin}} {{release}} {{outcome}}")).wide(12),
				chart("Files that came, changed or went", Count,
					"Deployments, on all hosts together.",
					ask(s.increase("plugin, result", "quern_plugin_loads_total"), "{{plugin}} {{result}}")).wide(12),
				table("Versions",
					"What serves. The reset mode is how a task gets a pristine instance: scan, pagemap and copy are fast, new is slow. No tenant: for all of them.",
					ask("count by (tenant, plugin, version, digest, reset_mode) ("+s.of("quern_plugin_reset_mode_info")+" == 1)", "")),
			}},
			{"Work", []Panel{
				chart("Runs", PerSecond,
					"By outcome, on all hosts.",
					ask(s.rate("plugin, outcome", "quern_tasks_total"), "{{plugin}} {{outcome}}")),
				chart("Failures by reason", PerSecond,
					"error: the plugin says so; trap: it crashed; timeout, memory, cpu and output: a limit.",
					ask(orZero(s.rate("plugin, reason", "quern_tasks_total", `outcome=~"failed|retried"`)), "{{plugin}} {{reason}}")),
				chart("Duration", Seconds,
					"From the start to the outcome. Points are single tasks: click one for its trace.",
					s.latency("plugin", "{{plugin}}", "quern_task_duration_seconds")),
				chart("CPU", Seconds,
					"CPUs that the tasks keep busy: seconds a second.",
					ask(s.rate("plugin", "quern_task_cpu_seconds_total"), "{{plugin}}")),
				chart("CPU of a run", Seconds,
					"Mean. If it grows and the fuel does not, the machines are slower or busy.",
					ask(perTask("quern_task_cpu_seconds_total"), "{{plugin}}")),
				chart("Fuel of a run", Count,
					"Mean. If it grows, the plugin does more: compare versions.",
					ask(perTask("quern_task_fuel_total"), "{{plugin}}")),
			}},
			{"Host functions, of all plugins", []Panel{
				chart("Calls", PerSecond,
					"Calls of plugins to their host.",
					ask(orZero(top(calls.rate("function", "quern_host_calls_total"))), "{{function}}")),
				chart("Calls that failed", PerSecond,
					"EDENIED: the manifest or the host's grants do not allow it.",
					ask(orZero(calls.rate("function, result", "quern_host_calls_total", `result!="ok"`)), "{{function}} {{result}}")),
				chart("Bytes", ByteRate,
					"What these calls moved, in and out.",
					ask(orZero(top(calls.rate("function", "quern_host_call_bytes_total"))), "{{function}}")),
			}},
		},
	}
}
