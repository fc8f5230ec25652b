package nodehost

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/api"
)

// API holds the settings that say where and to whom the API is served.
type API struct {
	address       string // of --admin; "" if the API is not served
	base          string
	tokens        string
	cert, key, ca string
	// OrFree takes a free port if that of the default address is in use.
	OrFree bool
}

// APIFlags adds the settings of the API to a command. address is the default of --admin.
func APIFlags(f *pflag.FlagSet, address string) *API {
	o := &API{}
	usage := "`ADDRESS` of the page and the API that show and steer the fleet; port 0 for a free one; only a loopback address without --tokens"
	if address == "" {
		usage += " (default none)"
	}
	f.StringVar(&o.address, "admin", address, usage)
	f.StringVar(&o.base, "base-path", "", "`PATH`, such as /quern, under which a proxy leads to --admin (default none)")
	f.StringVar(&o.tokens, "tokens", "", "YAML `FILE` that says who may do what with the API, read again when it changes (default none: everyone on this machine may do everything)")
	f.StringVar(&o.cert, "admin-cert", "", "`FILE` with the certificate of the API, for HTTPS (default none)")
	f.StringVar(&o.key, "admin-key", "", "`FILE` with the key of --admin-cert")
	f.StringVar(&o.ca, "admin-ca", "", "`FILE` with the authority of client certificates, which then may take the place of tokens (default none)")
	return o
}

// Listen starts to listen on the address of the API. It returns nil if the API is not served. o is nil for a command
// that lacks the API's flags.
func (o *API) Listen(flags *pflag.FlagSet, config api.Config) (_ *api.Server, err error) {
	if o == nil || o.address == "" {
		return nil, nil
	}
	if o.base = strings.TrimSuffix(o.base, "/"); o.base != "" && (o.base[0] != '/' || path.Clean(o.base) != o.base) {
		return nil, cli.WrongValue(flags.Lookup("base-path"), o.base,
			errors.New(`use a path that begins with / and has no "//", "." or "..", such as /quern`))
	}
	config.Logger, config.BasePath = config.Logger.Named("admin"), o.base
	if o.tokens != "" {
		if config.Access, err = api.LoadAccess(o.tokens, config.Logger); err != nil {
			if unreadable, ok := errors.AsType[*fs.PathError](err); ok {
				err = fmt.Errorf("%w: name a YAML file with the entries that `quern admin token` prints", unreadable.Err)
			}
			return nil, cli.WrongValue(flags.Lookup("tokens"), o.tokens, err)
		}
	}
	if config.TLS, err = o.tls(flags, config.Logger); err != nil {
		return nil, err
	}
	server, err := api.Listen(o.address, config)
	if errors.Is(err, syscall.EADDRINUSE) && o.OrFree && !cli.IsGiven(flags.Lookup("admin")) {
		host, _, _ := net.SplitHostPort(o.address)
		server, err = api.Listen(net.JoinHostPort(host, "0"), config)
	}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return nil, cli.Refusedf("%s %q: %w: choose another address, such as 127.0.0.1:0 for a free port",
			cli.Origin(flags.Lookup("admin")), o.address, network.Err)
	}
	if err != nil {
		return nil, cli.Usagef("%s: %w", cli.Origin(flags.Lookup("admin")), err)
	}
	config.Logger.Info("listening", "admin", server.Addr(), "page", o.origin(server)+"/")
	return server, nil
}

// origin returns the URL of a server that Listen returned, without a path.
func (o *API) origin(server *api.Server) string {
	if o.cert != "" {
		return "https://" + server.Addr()
	}
	return "http://" + server.Addr()
}

// tls returns the configuration for HTTPS, nil without a certificate. For new connections it reads the files again, at
// most once a second, because certificates are renewed.
func (o *API) tls(flags *pflag.FlagSet, logger hclog.Logger) (*tls.Config, error) {
	if o.cert == "" && o.key == "" && o.ca == "" {
		return nil, nil
	}
	if o.cert == "" || o.key == "" {
		return nil, cli.Usagef("--admin-cert %q, --admin-key %q, --admin-ca %q: HTTPS needs a certificate and its key, name both files", o.cert, o.key, o.ca)
	}
	if o.ca != "" && o.tokens == "" {
		return nil, cli.Usagef("--admin-ca %q: only with --tokens, whose list `certificates` says what the holders of client certificates may do", o.ca)
	}
	config, err := o.read(flags)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards the variables in the next line
	current, checked, told := config, time.Now(), ""
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(checked) < time.Second {
			return current, nil
		}
		checked = time.Now()
		fresh, err := o.read(flags)
		switch {
		case err == nil:
			current, told = fresh, ""
		case err.Error() != told:
			told = err.Error()
			logger.Warn("cannot use the certificates of the API as they are now; the last good ones count", "error", err)
		}
		return current, nil
	}}, nil
}

// read reads the certificate, its key and the authority of client certificates.
func (o *API) read(flags *pflag.FlagSet) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, cli.WrongValue(flags.Lookup("admin-cert"), o.cert,
			fmt.Errorf("%w: name PEM files of a certificate and its key", err))
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate},
		NextProtos: []string{"http/1.1"},
	}
	if o.ca == "" {
		return config, nil
	}
	text, err := os.ReadFile(o.ca)
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if err != nil || !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, cli.WrongValue(flags.Lookup("admin-ca"), o.ca, errors.New("name a readable PEM file of certificates"))
	}
	return config, nil
}

// files returns the names of the files that are read again after the process is confined.
func (o *API) files() []string {
	if o == nil {
		return nil
	}
	return []string{o.tokens, o.cert, o.key, o.ca}
}
