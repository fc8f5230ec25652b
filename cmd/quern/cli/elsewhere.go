package cli

import (
	"regexp"

	"github.com/spf13/cobra"
)

// elsewhere has the remedies for words that people type who know other systems: commands, and flags with their --.
var elsewhere = map[string]string{
	"worker": "use `quern serve`, or `quern dev` for development", "start": "use `quern serve`, or `quern dev` for development",
	"beat": "use `quern schedule`, or schedule in the plugin's manifest; every `quern serve` fires them",
	"cron": "use `quern schedule`, or schedule in the plugin's manifest",
	"logs": "use `quern task logs ID`", "log": "use `quern task logs ID`",
	"run":   "use `quern plugin run FILE` for a plugin without Redis, or `quern serve` for a host",
	"build": "use `quern plugin build`", "test": "use `quern plugin test`", "check": "use `quern plugin check FILE`",
	"new": "use `quern plugin new NAME`", "init": "use `quern plugin new NAME`", "create": "use `quern plugin new NAME`",
	"purge": "use `quern queue purge QUEUE`", "empty": "use `quern queue purge QUEUE`",
	"requeue": "use `quern task retry ID`, or --queue QUEUE for the failed tasks of one",
	"retry":   "use `quern task retry ID`, or --queue QUEUE for the failed tasks of one",
	"revoke":  "use `quern task cancel ID`", "cancel": "use `quern task cancel ID`",
	"call": "use `quern enqueue QUEUE PARAMETERS`", "send": "use `quern enqueue QUEUE PARAMETERS`",
	"result": "use `quern task wait ID`", "inspect": "use `quern node ls`, `quern task ls QUEUE`, or `quern top`",
	"status": "use `quern doctor`, or `quern top`", "info": "use `quern doctor`, or `quern top`",
	"monitor": "use `quern top`", "dashboard": "use `quern top`, or the page of `quern serve --admin`",
	"pause": "use `quern queue pause QUEUE`", "resume": "use `quern queue resume QUEUE`",

	"--retries": "use --max-attempts, which counts the first run, too", "--max-retries": "use --max-attempts, which counts the first run, too",
	"--args": "write the parameters behind the queue: `quern enqueue QUEUE PARAMETERS`", "--kwargs": "write the parameters behind the queue: `quern enqueue QUEUE PARAMETERS`",
	"--params": "write the parameters behind the queue: `quern enqueue QUEUE PARAMETERS`", "--data": "write the parameters behind the queue: `quern enqueue QUEUE PARAMETERS`",
	"--cron": "use `quern schedule`, or schedule in the plugin's manifest", "--countdown": "use --delay", "--eta": "use --at",
	"--expires": "use --deadline", "--concurrency": "use --slots", "--broker": "use --redis", "--job-id": "use --id", "--task-id": "use --id",
}

// flagOf matches a remedy that is a flag of the command.
var flagOf = regexp.MustCompile(`^use --([a-z-]+)`)

// ofOthers returns the remedy for a word of other systems; "" if there is none. Remedies that name a flag are for
// commands that have it.
func ofOthers(cmd *cobra.Command, word string) string {
	remedy := elsewhere[word]
	if flag := flagOf.FindStringSubmatch(remedy); flag != nil && cmd.Flag(flag[1]) == nil {
		return ""
	}
	return remedy
}
