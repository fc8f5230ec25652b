package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
)

func ExampleParseGrant() {
	grant, err := egress.ParseGrant("https://*.Example.com:443", []string{"GET", "HEAD"})
	fmt.Println(grant, err)
	_, err = egress.ParseGrant("https://api.example.com/v1", []string{"GET"})
	fmt.Println(err)
	// Output:
	// {host: "https://*.example.com", methods: [GET, HEAD]} <nil>
	// host "https://api.example.com/v1": has a path, a query or a fragment: leave it out, a host is granted as a whole
}

func ExampleClient_For() {
	client := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	defer client.Close()
	grant, err := egress.ParseGrant("http://169.254.169.254", []string{"GET"})
	if err != nil {
		fmt.Println(err)
		return
	}
	plugin := client.For("tenant", []egress.Grant{grant}, nil)
	for _, method := range []string{"GET", "PUT"} {
		_, err = plugin.Do(context.Background(), service.Request{Method: method, URL: "http://169.254.169.254/latest/api/token"})
		fmt.Println(errors.Is(err, service.ErrDenied), err)
	}
	// Output:
	// true GET http://169.254.169.254: denied: 169.254.169.254 is link-local (RFC 3927): the operator can allow the address with --allow-networks 169.254.169.254/32
	// true PUT http://169.254.169.254: denied: the manifest does not allow it: add PUT to methods of http://169.254.169.254 in capabilities.http
}
