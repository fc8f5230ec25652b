// Package tenant has the commands that show and change the data of one tenant, over Redis or by the API of --server.
package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// Commands returns the commands that work on a tenant.
func Commands(env cli.Environment) []*cobra.Command {
	return clientFlags(
		newEnqueue(env), newDoctor(env), newTop(env), newAudit(env),
		newTenant(env),
		cli.Group("task", "Show tasks, wait for them, cancel, retry and delete them",
			newTaskShow(env), newTaskLs(env), newTaskWait(env), newTaskAwait(env), newTaskLogs(env), newTaskReplay(env),
			newTaskCancel(env), newTaskRetry(env), newTaskDelete(env)),
		cli.Group("queue", "Show queues, pause, limit and purge them",
			newQueueLs(env), newQueueShow(env), newPause(env, pausableQueue, false),
			newPause(env, pausableQueue, true), newQueueLimit(env), newQueuePurge(env)),
		cli.Group("topic", "List topics and publish to them",
			newTopicLs(env), newTopicShow(env), newTopicPublish(env)),
		cli.Group("subscription", "Subscribe queues and webhooks to topics, pause and delete subscriptions",
			newSubscriptionCreate(env), newSubscriptionLs(env), newSubscriptionShow(env), newSubscriptionUpdate(env),
			newSubscriptionPause(env), newSubscriptionResume(env), newSubscriptionDelete(env), newSubscriptionDeliveries(env),
			newSubscriptionReplay(env)),
		cli.Group("publication", "Show what was published and what became of it", newPublicationLs(env),
			newPublicationShow(env)),
		cli.Group("schedule", "Make recurring tasks, show, pause, run and delete them",
			newScheduleCreate(env), newScheduleLs(env), newScheduleShow(env), newScheduleRun(env),
			newSchedulePause(env), newScheduleResume(env), newScheduleDelete(env), newScheduleSync(env)),
		cli.Group("node", "List listeners: hosts, workers and Python ones; drain them, requeue the tasks of dead ones",
			newNodeLs(env), newNodeDrain(env), newNodeReclaim(env)),
		cli.Group("kv", "Read the key-value store of handlers", newKVLs(env), newKVGet(env)),
	)
}

// DatabaseCommands returns the commands of `quern database` about the relays of a tenant.
func DatabaseCommands(env cli.Environment) []*cobra.Command {
	return clientFlags(newDatabaseLs(env), newDatabaseForget(env))
}

// PluginCommands returns the commands of `quern plugin` about the plugins that live hosts serve, and their releases.
func PluginCommands(env cli.Environment) []*cobra.Command {
	return clientFlags(newPluginLs(env), newPluginPush(env), newPluginReleases(env), newPluginShow(env),
		newPluginPromote(env), newPluginHalt(env), newPluginRollback(env), newPluginFreeze(env), newPluginDelete(env),
		newPluginRelease(env), newPause(env, pausablePlugin, false), newPause(env, pausablePlugin, true))
}
