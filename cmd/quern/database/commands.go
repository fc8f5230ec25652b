// Package database has the commands that work with a PostgreSQL: quern relay, quern database and quern outbox.
package database

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// Commands returns the commands of this package.
func Commands(env cli.Environment) []*cobra.Command {
	return []*cobra.Command{
		newRelay(env),
		cli.Group("database", "Make and check Quern's tables in a PostgreSQL", newSchema(), newInit(), newCheck()),
		cli.Group("outbox", "List, retry and delete rows that applications inserted into the outbox", newLs(), newShow(),
			newRetry(), newDelete(), newAgain()),
	}
}
