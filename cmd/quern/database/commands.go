// Package database has the commands that work with a PostgreSQL: quern relay, quern database and quern outbox.
package database

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// Commands returns the commands of this package. databases are further commands of quern database.
func Commands(env cli.Environment, databases ...*cobra.Command) []*cobra.Command {
	return []*cobra.Command{
		newRelay(env),
		cli.Group("database", "List the databases whose rows become tasks, and make and check Quern's tables in one",
			append([]*cobra.Command{newSchema(), newInit(), newCheck()}, databases...)...),
		cli.Group("outbox", "List, retry and delete rows that applications inserted into the outbox", newLs(), newShow(),
			newRetry(), newDelete(), newAgain()),
	}
}
