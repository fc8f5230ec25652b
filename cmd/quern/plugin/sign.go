package plugin

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/plugins/signature"
	"github.com/quern-project/quern/sdk/queue/release"
)

// releaseOf reads the plugin of a file or folder, and makes its release.
func releaseOf(path string) (*pluginfile.File, release.Release, error) {
	file, err := pluginfile.ModuleIn(path)
	if err != nil {
		return nil, release.Release{}, err
	}
	p, err := pluginfile.Read(file)
	if err == nil {
		err = p.Refusal()
	}
	if err != nil {
		return nil, release.Release{}, err
	}
	r, _, err := p.Release()
	return p, r, err
}

func newPluginSign() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sign FILE|DIR", Short: "Sign the release of a plugin, so that hosts with signers serve it",
		Long: "Signs a plugin's module, its manifest and the files that the manifest names, and writes the signature into\n" +
			"NAME.sig beside the module, which `quern plugin push` stores with the release. Sign again after each change.\n" +
			"Without --key it prints the text to sign, for `minisign -S -x NAME.sig` or\n" +
			"`cosign sign-blob --output-signature NAME.sig`.",
		Args: cli.Arguments(1, 1),
	}
	var key, password string
	cmd.Flags().StringVar(&key, "key", "", "`FILE` with the private key: of minisign, or ECDSA in PEM (default none)")
	cmd.Flags().StringVar(&password, "password-file", "", "`FILE` with the password of an encrypted key of minisign (default none)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, r, err := releaseOf(args[0])
		if err != nil {
			return err
		}
		if key == "" {
			_, err = cmd.OutOrStdout().Write(r.Statement())
			return err
		}
		private, err := readPrivate(cmd, key, password)
		if err != nil {
			return err
		}
		signed, err := private.Sign(r.Statement())
		if err == nil {
			err = atomicfile.Write(p.SignaturePath(), []byte(signed), 0o644)
		}
		if err != nil {
			return cli.Refusedf("write %s: %w", p.SignaturePath(), err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), p.SignaturePath())
		return err
	}
	return cmd
}

func unread(cmd *cobra.Command, flag, file string, err error) error {
	return cli.WrongValue(cmd.Flag(flag), file, fmt.Errorf("%w: name a file that this user may read", cli.Bare(err)))
}

// readPrivate reads a private key, with the password in a file if there is one.
func readPrivate(cmd *cobra.Command, key, password string) (signature.Private, error) {
	text, err := os.ReadFile(key)
	if err != nil {
		return signature.Private{}, unread(cmd, "key", key, err)
	}
	secret := []byte(nil)
	if password != "" {
		if secret, err = os.ReadFile(password); err != nil {
			return signature.Private{}, unread(cmd, "password-file", password, err)
		}
	}
	private, err := signature.ParsePrivate(text, strings.TrimRight(string(secret), "\r\n"))
	if err != nil {
		return private, cli.WrongValue(cmd.Flag("key"), key,
			fmt.Errorf("%w: name a private key of minisign, with --password-file if it is encrypted, or an ECDSA key in PEM", err))
	}
	return private, nil
}

func newPluginVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify FILE|DIR", Short: "Check the signature of a plugin's release with public keys",
		Long: "Checks that NAME.sig beside the module is a signature of the plugin's files as they are now, and prints the\n" +
			"file of the key that made it. Hosts check the same with the `signers` in the tenant's entry of --grants.\n\n" +
			"Exit status: 0 signed by one of the keys, 2 there is no such file, 3 it is not.",
		Args: cli.Arguments(1, 1),
	}
	var files []string
	option.List(cmd.Flags(), &files, "key", nil, "files with public keys: of minisign, or ECDSA in PEM (default none)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, r, err := releaseOf(args[0])
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return cli.Usagef("name a file with a public key by --key")
		}
		keys := make([]signature.Key, len(files))
		for i, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return unread(cmd, "key", file, err)
			}
			if keys[i], err = signature.ParseKey(file, lastLine(string(text))); err != nil {
				return cli.WrongValue(cmd.Flag("key"), file, errors.New("name the file of a public key: of minisign, or an ECDSA key in PEM"))
			}
		}
		by, err := signature.Check(r.Statement(), r.Signatures, keys)
		if err != nil {
			return cli.Refusedf("%s: %w", args[0], err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "signed by", by)
		return err
	}
	return cmd
}

// lastLine returns the last line of a file of minisign, in which the key is, or the whole of a file in PEM.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN") {
		return text
	}
	return text[strings.LastIndexByte(text, '\n')+1:]
}
