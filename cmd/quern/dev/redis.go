package dev

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// embeddedRedis is the Redis of `quern dev`. Every user of the machine can connect to its port. Therefore miniredis
// only gets commands of clients that have given the password, and only well-formed ones: an empty command crashes it.
type embeddedRedis struct {
	*miniredis.Miniredis
	listener  net.Listener
	password  string
	accepting sync.WaitGroup
}

// startRedis starts an embedded Redis that listens on a port of 127.0.0.1. Port 0 means a free one.
func startRedis(port int, password string) (*embeddedRedis, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	e := &embeddedRedis{Miniredis: miniredis.NewMiniRedis(), listener: listener, password: password}
	e.RequireAuth(password)
	first, err := e.Dial() // starts miniredis without its own listener
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	_ = first.Close()
	if err := e.Server().Register("CONFIG", config); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	e.accepting.Go(e.accept)
	return e, nil
}

// config answers CONFIG GET, which `quern doctor` asks: this Redis evicts no key, and has none of the other settings.
func config(c *server.Peer, _ string, args []string) {
	switch {
	case len(args) < 2 || !strings.EqualFold(args[0], "GET"):
		c.WriteError("ERR this Redis has CONFIG GET alone")
	case strings.EqualFold(args[1], "maxmemory-policy"):
		c.WriteMapLen(1)
		c.WriteBulk("maxmemory-policy")
		c.WriteBulk("noeviction")
	default:
		c.WriteMapLen(0)
	}
}

// accept serves clients until the listener is closed.
func (e *embeddedRedis) accept() {
	for {
		conn, err := e.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			periodic.Sleep(e.Ctx, acceptPause)
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(loginTime)) // if this fails, the next read fails, too
		e.Server().ServeConn(&guardedConn{Conn: conn, in: bufio.NewReader(conn), password: e.password})
	}
}

// close stops the Redis and closes the connections of its clients.
func (e *embeddedRedis) close() {
	_ = e.listener.Close()
	e.accepting.Wait()
	e.Close()
}

// addr returns the address of the Redis as HOST:PORT.
func (e *embeddedRedis) addr() string { return e.listener.Addr().String() }

// maxWords and maxWord bound the words of a command and the bytes of a word. maxLoginWords and maxLoginWord are the
// bounds until a client has given the password. It must do that within loginTime. acceptPause is the pause after a
// failed Accept.
const (
	maxWords, maxLoginWords = 1 << 20, 10
	maxWord, maxLoginWord   = 512 << 20, 1 << 10
	loginTime               = 10 * time.Second
	acceptPause             = 100 * time.Millisecond
)

var (
	errProtocol = errors.New("no command of Redis's protocol")
	// errNoLogin means that a client has sent a command that is too large for a login before it gave the password.
	errNoLogin = errors.New("no password")
)

// noAuth is Redis's answer to commands before the login.
const noAuth = "NOAUTH Authentication required."

// guardedConn is a client's connection from which only well-formed commands can be read: arrays of at least one string.
type guardedConn struct {
	net.Conn
	in       *bufio.Reader
	password string
	known    bool   // true once the client has given the password
	ready    []byte // checked bytes that Read returns next
	words    int    // number of the command's words that are still to be read
	body     int    // number of the current word's bytes still to be read, with its line end
}

func (g *guardedConn) Read(p []byte) (int, error) {
	for len(g.ready) == 0 {
		if g.body > 0 {
			n, err := g.in.Read(p[:min(len(p), g.body)])
			g.body -= n
			return n, err
		}
		switch err := g.next(); {
		case errors.Is(err, errProtocol):
			return 0, errors.Join(err, g.say("ERR Protocol error"))
		case errors.Is(err, errNoLogin):
			return 0, errors.Join(err, g.say(noAuth))
		case err != nil:
			return 0, err
		}
	}
	n := copy(p, g.ready)
	g.ready = g.ready[n:]
	return n, nil
}

// next reads the next header, of a command or of a word, into ready. Until the client has given the password, it reads
// a whole command instead, by login.
func (g *guardedConn) next() (err error) {
	switch {
	case !g.known:
		return g.login()
	case g.words == 0:
		g.words, err = g.header('*', 1, maxWords)
	default:
		if g.body, err = g.header('$', 0, maxWord); err == nil {
			g.words, g.body = g.words-1, g.body+len("\r\n")
		}
	}
	return err
}

// header reads a line that consists of kind and a number from minimum to maximum. It appends the line to ready and
// returns the number.
func (g *guardedConn) header(kind byte, minimum, maximum int) (int, error) {
	line, err := g.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return 0, errProtocol
	}
	if err != nil {
		return 0, err
	}
	number, isKind := bytes.CutPrefix(line, []byte{kind})
	number, isWhole := bytes.CutSuffix(number, []byte("\r\n"))
	n, err := strconv.Atoi(string(number))
	if !isKind || !isWhole || err != nil || n < minimum || n > maximum {
		return 0, errProtocol
	}
	g.ready = append(g.ready, line...)
	return n, nil
}

// login reads one command. If it has the right password, the command stays in ready, for miniredis. Otherwise login
// answers with an error.
func (g *guardedConn) login() error {
	words, err := g.header('*', 1, maxWords)
	if err != nil {
		return err
	}
	if words > maxLoginWords {
		return errNoLogin
	}
	command := make([]string, words)
	for i := range command {
		size, err := g.header('$', 0, maxWord)
		if err != nil {
			return err
		}
		if size > maxLoginWord {
			return errNoLogin
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(g.in, word); err != nil {
			return err
		}
		g.ready, command[i] = append(g.ready, word...), string(word[:size])
	}
	password, given := passwordOf(command)
	switch {
	case given && subtle.ConstantTimeCompare([]byte(password), []byte(g.password)) == 1:
		g.known = true
		return g.SetReadDeadline(time.Time{})
	case given:
		g.ready = nil
		return g.say("WRONGPASS invalid username-password pair or user is disabled.")
	default:
		g.ready = nil
		return g.say(noAuth)
	}
}

// passwordOf returns the password in AUTH [USER] PASSWORD or HELLO VERSION AUTH USER PASSWORD.
func passwordOf(command []string) (password string, given bool) {
	switch strings.ToUpper(command[0]) {
	case "AUTH":
		return command[len(command)-1], len(command) > 1
	case "HELLO":
		for i, word := range command {
			if strings.EqualFold(word, "AUTH") && len(command) > i+2 {
				return command[i+2], true
			}
		}
	}
	return "", false
}

// say answers the client with an error.
func (g *guardedConn) say(text string) error {
	_, err := io.WriteString(g.Conn, "-"+text+"\r\n")
	return err
}

// devPassword returns the password of this user's embedded Redis. It is kept in a file that only this user can read. So
// with --redis-port, the URL is the same after each start.
func devPassword(env cli.Environment) string {
	password := rand.Text()
	dir, err := env.CacheDir()
	if err != nil {
		return password // no folder to keep it in: each start has another one
	}
	path := filepath.Join(dir, "quern", "dev-password")
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 == 0 {
		if kept, err := os.ReadFile(path); err == nil && len(bytes.TrimSpace(kept)) == len(password) {
			return string(bytes.TrimSpace(kept))
		}
	}
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = atomicfile.Write(path, []byte(password+"\n"), 0o600)
	}
	return password
}

// expire removes expired keys from an embedded Redis, once a second until ctx ends. miniredis can do that at each
// command, but would then look at all keys.
func expire(ctx context.Context, embedded *miniredis.Miniredis) {
	for last := time.Now(); periodic.Sleep(ctx, time.Second); {
		now := time.Now()
		embedded.FastForward(now.Sub(last))
		last = now
	}
}
