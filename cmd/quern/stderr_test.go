package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestServersDoNotWriteToStderr: what a server sends that nobody asked for is not in the program's own stderr, where
// net/http writes it.
func TestServersDoNotWriteToStderr(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 forged")
			}
		}
	}()
	url := "http://" + listener.Addr().String()
	plugin := write(t, filepath.Join(t.TempDir(), "asking.wasm"), string(runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static const char head[] = "{\"url\":\"`+url+`\"}";
	if (quern_http(head, sizeof head - 1, "", 0) <= 0) return 1;
	quern_sleep(200); // until the connection is idle, and the rest has come
	return 0;
}`)))
	write(t, strings.TrimSuffix(plugin, ".wasm")+".yaml", "capabilities: {http: [{host: \""+url+"\", methods: [GET]}]}\n")
	c := newUser(t, "").spawn("plugin", "run", plugin, "--allow-networks", "127.0.0.0/8")
	if err := c.Wait(); err != nil || c.stderr.String() != "" {
		t.Errorf("%v: %s", err, c.stderr)
	}
}
