package tenant

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/replay"
)

// The maximum numbers of bytes of a file with a record, and of one with private keys.
const (
	maxRecordFile   = 64 << 20
	maxIdentityFile = 64 << 10
)

var errLargeFile = errors.New("the file is too large")

// readFile reads a file of at most most bytes.
func readFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = errLargeFile
	}
	return data, err
}

// read reads the record from a file or, with its input, from the task. client is nil for a file.
func (r *taskReplay) read(cmd *cobra.Command, from string) (record *replay.Record, client admin.Tenant, err error) {
	identities, err := r.identities(cmd)
	if err != nil {
		return nil, nil, err
	}
	data, err := readFile(from, maxRecordFile)
	switch {
	case errors.Is(err, errLargeFile):
		return nil, nil, cli.Usagef("%s has more than %d MiB, and is no record: name a file that --update-record wrote, or the ID of a task",
			from, maxRecordFile>>20)
	case err == nil:
		r.file = from
		if record, err = replay.Decode(data, identities...); err != nil {
			err = r.unreadable("", err)
		}
		return record, nil, err
	case strings.ContainsAny(from, `/\`) || strings.HasSuffix(from, ".record"):
		return nil, nil, cli.Usagef("read record: %w", err)
	}
	if client, err = dial(cmd, r.env); err != nil {
		return nil, nil, err
	}
	record, err = r.recordOf(cmd.Context(), client, from, identities)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return record, client, nil
}

// identities reads the private keys in the file of --identity.
func (r *taskReplay) identities(cmd *cobra.Command) ([]replay.Identity, error) {
	if r.identity == "" {
		return nil, nil
	}
	flag := cmd.Flag("identity")
	data, err := readFile(r.identity, maxIdentityFile)
	if errors.Is(err, errLargeFile) {
		err = fmt.Errorf("it has more than %d bytes: name a file that `age-keygen` wrote", maxIdentityFile)
	}
	if err != nil {
		return nil, cli.WrongValue(flag, r.identity, err)
	}
	if bytes.HasPrefix(data, []byte("age-encryption.org/")) || bytes.HasPrefix(data, []byte("-----BEGIN AGE")) {
		return nil, cli.WrongValue(flag, r.identity, fmt.Errorf("it is encrypted: decrypt it by `age -d -o key.txt %s`, and name key.txt",
			cli.ShellWord(r.identity)))
	}
	identities, err := replay.ParseIdentities(bytes.NewReader(data))
	if err != nil {
		return nil, cli.WrongValue(flag, r.identity, fmt.Errorf("%w: name a file that `age-keygen` wrote, with a line that begins with AGE-SECRET-KEY-",
			err))
	}
	return identities, nil
}

// unreadable says which record cannot be read, and what to do about it. task is "" if it is not known.
func (r *taskReplay) unreadable(task string, err error) error {
	from, refuse := "task "+task, cli.Refusedf
	if r.file != "" {
		from, refuse = r.file, cli.Usagef
	}
	encrypted, isEncrypted := errors.AsType[*replay.EncryptedError](err)
	remedy := "name a file that --update-record wrote, or the ID of a task"
	switch damaged := errors.Is(err, replay.ErrDamaged); {
	case isEncrypted && encrypted.Tried > 0:
		refuse = cli.Usagef
		remedy = "pass --identity FILE with the private key of one of these public keys, and not " + cli.ShellWord(r.identity)
	case isEncrypted:
		refuse = cli.Usagef
		remedy = "pass --identity FILE with the private key of one of these public keys, as `age-keygen` wrote it"
	case damaged && r.file == "":
		remedy = "run the task again by `quern task retry " + cli.ShellWord(task) + "`: its next record takes the place of this one"
	case damaged:
		remedy = fmt.Sprintf("copy the file again, or write it again by `quern task replay %s --update-record %s`",
			cli.ShellWord(cmp.Or(task, "ID")), cli.ShellWord(r.file))
	}
	return refuse("%s: %w: %s", from, err, remedy)
}

func (r *taskReplay) recordOf(ctx context.Context, client admin.Tenant, id string, identities []replay.Identity,
) (*replay.Record, error) {
	task, err := findTask(ctx, client, id)
	if err != nil {
		return nil, err
	}
	if task.Record != nil && task.Record.Size == 0 {
		return nil, cli.Refusedf("the record of run %d of task %s was larger than limits.record of its plugin, and is not kept: raise that in the manifest",
			task.Record.Run, task.ID)
	}
	data, err := client.Record(ctx, task.ID)
	if err != nil {
		return nil, err
	}
	record, err := replay.Decode(data, identities...)
	if err != nil {
		return nil, r.unreadable(task.ID, err)
	}
	record.Input = task.ParametersBase64
	if task.Parameters != nil {
		record.Input = []byte(*task.Parameters)
	}
	if record.Input == nil {
		record.Input = []byte{}
	}
	return record, nil
}

// checkSecrets returns an error if --secret has no name.
func (r *taskReplay) checkSecrets() error {
	for _, text := range r.secrets {
		if name, _, _ := strings.Cut(text, "="); name == "" {
			return cli.Usagef("--secret has no name: write --secret NAME=VALUE, or --secret NAME for the environment variable of that name")
		}
	}
	return nil
}

// secretsOf returns the values of the secrets that the run has read. It is an error if one is missing.
func (r *taskReplay) secretsOf(record *replay.Record) (map[string][]byte, error) {
	values := make(map[string][]byte)
	for _, text := range r.secrets {
		name, value, found := strings.Cut(text, "=")
		if !found {
			if value = r.env.Get(name); value == "" {
				return nil, cli.Usagef("--secret %s: the environment has no variable of that name: set it, or write --secret %s=VALUE", name,
					name)
			}
		}
		values[name] = []byte(value)
	}
	var missing []string
	for _, name := range record.SecretNames() {
		if _, given := values[name]; !given {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		what, form := "the secret %s, whose value no record has", "variable of that name"
		if len(missing) > 1 {
			what, form = "the secrets %s, whose values no record has", "variables of these names"
		}
		return nil, cli.Usagef("the run has read "+what+": pass --secret %s=VALUE, or --secret %s for the environment %s",
			strings.Join(missing, ", "), strings.Join(missing, "=VALUE --secret "), strings.Join(missing, " --secret "), form)
	}
	return values, nil
}

// wrongSecrets returns why a replay may differ from the record, and the remedy, if it was given other values of secrets
// than the run has read; else "".
func wrongSecrets(record *replay.Record, values map[string][]byte) string {
	var wrong []string
	for _, name := range record.SecretNames() {
		if !record.IsSecret(name, values[name]) {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("; the run has read another value of %s: pass the value of that time by --secret %s=VALUE",
		strings.Join(wrong, ", "), strings.Join(wrong, "=VALUE --secret "))
}

// checkUpdate returns an error if --update-record names a file that cannot be written.
func (r *taskReplay) checkUpdate() error {
	if r.update == "" {
		return nil
	}
	if info, err := os.Stat(r.update); err == nil && info.IsDir() {
		return cli.Usagef("--update-record %s is a folder: name a file in it, such as %s", r.update,
			filepath.Join(r.update, "fixed.record"))
	}
	dir := filepath.Dir(r.update)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cli.Usagef("--update-record %s: there is no folder %s: name one that there is, or make it by `mkdir -p %s`", r.update, dir,
			cli.ShellWord(dir))
	}
	return nil
}

// write writes the record of the replay to the file of --update-record.
func (r *taskReplay) write(cmd *cobra.Command, p *pluginfile.File, record *replay.Record, tape *replay.Tape,
	now replay.Outcome,
) error {
	if r.update == "" {
		return nil
	}
	updated := *record
	updated.Module, updated.Outcome = digestOf(p.Binary()), now
	if text, err := os.ReadFile(p.ManifestPath); err == nil {
		updated.Manifest = digestOf(text)
	}
	err := tape.Finish(&updated)
	var data []byte
	if err == nil {
		data, err = updated.Encode(1 << 30)
	}
	if err == nil {
		err = atomicfile.Write(r.update, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	cli.Note(cmd, "%s has the record, with the task's input and the answers of services: mind who may see them", r.update)
	return nil
}
