package tenant

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
)

func newDoctor(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with Redis, hosts, plugins and queues, and say how to mend it",
		Long: "Looks at Redis (version, settings, disk, memory, latency, role, access), hosts (leases, versions, clocks,\n" +
			"slots, memory, reset modes), plugins (refused, quarantined) and queues (tasks that nobody serves, pauses,\n" +
			"limits), of --tenant or of all tenants that it finds, and prints each finding with its remedy. It changes\n" +
			"nothing.\n\n" +
			"Exit status: 0 no errors, 1 some, 3 Redis is not reachable. Warnings do not count.",
		Args: cli.Arguments(0, 0),
	}
	connect.Flags(cmd)
	serverFlags(cmd)
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		names := []string{client.Tenant()}
		if !cli.IsGiven(cmd.Flag("tenant")) {
			others, err := client.Tenants(cmd.Context())
			if err != nil {
				cli.Note(cmd, "only the tenant %s is looked at: %v: name another with --tenant", names[0], err)
			}
			others = slices.DeleteFunc(others, func(name string) bool { return name == names[0] })
			names = append(names, slices.Sorted(slices.Values(others))...)
		}
		findings, err := client.Findings(cmd.Context(), names...)
		if err != nil {
			return err
		}
		return showFindings(cmd, json, names, findings)
	})
}

// remedyOf is the remedy of a finding, with a command that can be pasted.
func remedyOf(cmd *cobra.Command, f doctor.Finding) string {
	text := show.OneLine(f.Remedy)
	if len(f.Command) > 0 {
		text += ": `quern"
		for _, word := range f.Command {
			text += " " + cli.ShellWord(word)
		}
		text += "`"
	}
	return cli.Pasteable(cmd, text)
}

// showFindings prints what the doctor found. The error counts the findings that are errors.
func showFindings(cmd *cobra.Command, json bool, tenants []string, findings []doctor.Finding) error {
	w, s, levels := cmd.OutOrStdout(), show.ScreenOf(cmd), make(map[doctor.Level]int)
	color := map[doctor.Level]string{doctor.Error: "31", doctor.Warning: "33", doctor.Note: "36"}
	for _, f := range findings {
		levels[f.Level]++
		if json {
			continue
		}
		if f.Tenant != "" && len(tenants) > 1 {
			_ = cmd.Flags().Set("tenant", f.Tenant) // for the command to paste
		}
		about := f.Check
		if f.Tenant != "" {
			about += ", tenant " + f.Tenant
		}
		if f.Since > 0 {
			about += ", since " + time.UnixMilli(int64(f.Since*1000)).UTC().Format("2006-01-02 15:04:05 UTC")
		}
		if _, err := fmt.Fprintf(w, "%s (%s): %s\n  %s\n", s.Code(color[f.Level], string(f.Level)), about, show.OneLine(f.Problem), remedyOf(cmd, f)); err != nil {
			return err
		}
	}
	failed, notes := levels[doctor.Error], ""
	if n := levels[doctor.Note]; n > 0 {
		notes = fmt.Sprintf(", %d notes", n)
	}
	if json {
		err := show.JSON(w, show.View{{"ok", "", failed == 0}, {"tenants", "", tenants}, {"checks", "", doctor.Checks()}, {"findings", "", findings}})
		if err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(w, "%d checks of %d tenants: %d errors, %d warnings%s\n", len(doctor.Checks()), len(tenants), failed, levels[doctor.Warning], notes); err != nil {
		return err
	}
	if failed > 0 {
		return &cli.ExitError{Status: cli.ExitFailed, Err: fmt.Errorf("%d errors found", failed)}
	}
	return nil
}
