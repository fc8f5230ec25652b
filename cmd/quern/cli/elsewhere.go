package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// elsewhere has the remedies for words that people type who know other systems: commands, and flags with their --. The
// names of commands in groups need none: see inGroups.
var elsewhere = map[string]string{
	"worker": useServe, "start": useServe,
	"beat": useSchedule, "cron": useSchedule, "--cron": useSchedule,
	"log":  "use `quern task logs ID`",
	"init": useNew, "create": useNew,
	"empty": "use `quern queue purge QUEUE`", "requeue": useRetry, "revoke": "use `quern task cancel ID`",
	"call": "use `quern enqueue QUEUE PARAMETERS`", "send": "use `quern enqueue QUEUE PARAMETERS`",
	"result": "use `quern task wait ID`", "inspect": "use `quern node ls`, `quern task ls QUEUE`, or `quern top`",
	"status": "use `quern doctor`, or `quern top`", "info": "use `quern doctor`, or `quern top`",
	"monitor": "use `quern top`", "dashboard": "use `quern top`, or the page of `quern serve --admin`",

	"--retries": useAttempts, "--max-retries": useAttempts,
	"--args": useParameters, "--kwargs": useParameters, "--params": useParameters, "--data": useParameters,
	"--countdown": "use --delay", "--eta": "use --at", "--expires": "use --deadline",
	"--broker": "use --redis", "--job-id": "use --id", "--task-id": "use --id",
}

const (
	useServe      = "use `quern serve`, or `quern dev` for development"
	useSchedule   = "use `quern schedule`, or schedule in the plugin's manifest; every `quern serve` fires them"
	useNew        = "use `quern plugin new NAME`"
	useRetry      = "use `quern task retry ID`, or --queue QUEUE for the failed tasks of one"
	useAttempts   = "use --max-attempts, which counts the first run, too"
	useParameters = "write the parameters behind the queue: `quern enqueue QUEUE PARAMETERS`"
)

// flagOf matches a remedy that is a flag of the command.
var flagOf = regexp.MustCompile(`^use --([a-z-]+)`)

// ofOthers returns the remedy for a word of other systems; "" if there is none. A remedy that names a flag is for
// commands that have it. In a group, and for parameters, it is only for the commands that it names.
func ofOthers(cmd *cobra.Command, word string) string {
	remedy := elsewhere[word]
	named := strings.Contains(remedy, "`"+cmd.CommandPath()+" ")
	if flag := flagOf.FindStringSubmatch(remedy); flag != nil {
		named = cmd.Flag(flag[1]) != nil
	} else if word == "--cron" || !cmd.HasParent() {
		named = true
	}
	if !named {
		return ""
	}
	return remedy
}
