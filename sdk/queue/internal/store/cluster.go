package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// cluster is a connection pool for each primary of a Redis Cluster. All tenants share the pools. It sends no commands
// itself: ForTenant makes a client for one tenant.
type cluster struct {
	*redis.ClusterClient
	bounded bool // the connections bound the size of replies

	loading chan struct{} // has a token while the owners of the slots are read
	loaded  time.Time     // when they were last read; guarded by loading
}

func newCluster(rdb *redis.ClusterClient) *cluster {
	return &cluster{ClusterClient: rdb, loading: make(chan struct{}, 1)}
}

// ForTenant returns a client for the keys of one tenant. On a Cluster, this client sends every command, also one
// without a key such as TIME or WAIT, to the primary of the tenant's slot. Otherwise it is rdb. Only subscriptions open
// connections of its own.
func ForTenant(rdb redis.UniversalClient, tenant string) (redis.UniversalClient, error) {
	var c *cluster
	switch rdb := rdb.(type) {
	case *cluster:
		c = rdb
	case *redis.ClusterClient:
		c = newCluster(rdb)
	default:
		return rdb, nil
	}
	if !strings.HasPrefix(tenant, "{") {
		return nil, fmt.Errorf("%w: tenant %q: a Redis Cluster spreads its keys over several servers: name the tenant {%s}, with the braces, which keep its keys together",
			ErrInvalid, tenant, tenant)
	}
	s := &shard{cluster: c, key: Keys{tenant}.Task(""), pinned: make(map[net.Conn]string)}
	o := c.Options()
	client := redis.NewClient(&redis.Options{
		Addr: o.Addrs[0], Dialer: s.dial, ClientName: o.ClientName, Protocol: o.Protocol,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, OnConnect: o.OnConnect,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
		WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled, PoolSize: 1,
		TLSConfig:                o.TLSConfig,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	keyNaming(client).AddHook(s)
	if c.bounded {
		return Bounded{client}, nil
	}
	return client, nil
}

// shard is a go-redis hook that sends the commands of one tenant through the pool of the primary of the tenant's slot.
// The tenant's client itself dials only for Pub/Sub, lease renewals and large payloads: these connections are pinned to
// that primary.
//
// A command that is answered with MOVED was not executed, and is sent to the new primary. No redirection by ASK is
// followed. While a slot is moved, each of its keys is on one of two servers, and a script would find only some of
// them. Redis refuses scripts then, because each declares a key that does not exist (see Call.keys), and refuses the
// commands whose keys are gone. These errors are transient: see IsUnavailable.
type shard struct {
	cluster *cluster
	key     string // in the tenant's slot

	mu     sync.Mutex
	pinned map[net.Conn]string // by connection: the server's address; guarded by mu
}

// maxMoves is how often a command that is answered with MOVED is sent again.
const maxMoves = 3

// movePause is half of the first pause before such a command is sent again, except the first time.
const movePause = 25 * time.Millisecond

// DialHook is part of redis.Hook.
func (s *shard) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is part of redis.Hook.
func (s *shard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if opensConnection(cmd) {
			return next(ctx, cmd)
		}
		return s.send(ctx, func(node *redis.Client) error {
			cmd.SetErr(nil)
			return node.Process(ctx, cmd)
		})
	}
}

// ProcessPipelineHook is part of redis.Hook. If several commands fail, the error is one that means that Redis is
// unavailable, if there is one.
func (s *shard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && opensConnection(cmds[0]) {
			return next(ctx, cmds)
		}
		left := cmds
		err := s.send(ctx, func(node *redis.Client) error {
			pipe := node.Pipeline()
			if left[0].Name() == "multi" {
				pipe, left = node.TxPipeline(), left[1:len(left)-1]
			}
			for _, cmd := range left {
				cmd.SetErr(nil)
				_ = pipe.Process(ctx, cmd) // queues it
			}
			if _, err := pipe.Exec(ctx); !slices.ContainsFunc(left, func(cmd redis.Cmder) bool { return isMoved(cmd.Err()) }) {
				return err
			}
			var moved error
			left = slices.DeleteFunc(slices.Clone(left), func(cmd redis.Cmder) bool {
				if isMoved(cmd.Err()) {
					moved = cmd.Err()
					return false
				}
				return cmd.Name() != "wait" // WAIT counts the replicas of the server that executed the writes
			})
			return moved
		})
		var first error
		for _, cmd := range cmds {
			if IsUnavailable(cmd.Err()) {
				return cmd.Err()
			}
			first = cmp.Or(first, cmd.Err())
		}
		if first == nil && err != nil { // nothing was sent
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return cmp.Or(first, err)
	}
}

// opensConnection reports whether go-redis sends the command when it opens a connection.
func opensConnection(cmd redis.Cmder) bool {
	return slices.Contains([]string{"hello", "auth", "client", "select", "readonly"}, cmd.Name())
}

func isMoved(err error) bool { return redis.HasErrorPrefix(err, "MOVED ") }

// send calls attempt with the pool of the slot's primary, and again while the slot has moved.
func (s *shard) send(ctx context.Context, attempt func(node *redis.Client) error) error {
	for moves := 0; ; moves++ {
		sent := time.Now()
		node, err := s.node(ctx)
		if err == nil {
			err = attempt(node)
		}
		_, answered := Answered(err)
		switch {
		case !isMoved(err):
			if !answered && IsUnavailable(err) {
				s.cluster.ReloadState(ctx) // perhaps a replica takes over
			}
			return err
		case moves == maxMoves, s.cluster.reload(ctx, sent) != nil:
			return err
		}
		s.unpin(ctx)
		if moves > 0 { // the servers do not agree yet
			select {
			case <-ctx.Done():
				return err
			case <-time.After(movePause << moves):
			}
		}
	}
}

// node returns the pool of the slot's primary.
func (s *shard) node(ctx context.Context) (*redis.Client, error) {
	node, err := s.cluster.MasterForKey(ctx, s.key)
	if text, ok := Answered(err); ok && strings.Contains(text, "cluster support disabled") {
		err = fmt.Errorf("%w: Redis URL: this Redis is not a Cluster: leave out cluster=true: %w", ErrInvalid, err)
	}
	return node, err
}

// reload reads the owners of the slots, unless somebody has begun to read them after since.
func (c *cluster) reload(ctx context.Context, since time.Time) error {
	select {
	case c.loading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.loading }()
	if c.loaded.After(since) {
		return nil
	}
	began := time.Now()
	// This reads the owners before it calls the function for each primary. ReloadState would read them in the background.
	err := c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
	if err == nil {
		c.loaded = began
	}
	return err
}

// dialFresh is how long ago the owners of the slots may have been read when a pinned connection is dialed.
const dialFresh = time.Second

// dial dials the slot's primary.
func (s *shard) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	err := s.cluster.reload(ctx, time.Now().Add(-dialFresh))
	if err != nil {
		return nil, err
	}
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	address := node.Options().Addr
	conn, err := node.Options().Dialer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.pinned[conn] = address
	s.mu.Unlock()
	pinned := pinnedConn{conn, s}
	if system, ok := conn.(syscall.Conn); ok {
		return pinnedSystemConn{pinned, system}, nil
	}
	return pinned, nil
}

// unpin closes the connections that lead to another server than the slot's primary.
func (s *shard) unpin(ctx context.Context) {
	node, err := s.node(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, address := range s.pinned {
		if address != node.Options().Addr {
			_ = conn.Close() // its user closes the pinnedConn then
		}
	}
}

// pinnedConn is a connection to the primary of a tenant's slot.
type pinnedConn struct {
	net.Conn
	shard *shard
}

// Close ends the connection.
func (c pinnedConn) Close() error {
	c.shard.mu.Lock()
	delete(c.shard.pinned, c.Conn)
	c.shard.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// pinnedSystemConn is a pinnedConn with access to its socket, which go-redis checks before it reuses the connection.
type pinnedSystemConn struct {
	pinnedConn
	syscall.Conn
}

// Connect makes the store use rdb: see ForTenant. Keys and Lease must be set.
func (s *Store) Connect(rdb redis.UniversalClient) (err error) {
	if s.RDB, err = ForTenant(rdb, s.Keys.Tenant); err != nil {
		return err
	}
	s.Beats, s.pool = BeatConnection(s.RDB, s.Lease), rdb
	return nil
}

// Pool returns the connection pool that Connect was given.
func (s *Store) Pool() redis.UniversalClient { return s.pool }

// refuseCluster is a go-redis hook for a client of a single server. It refuses a server of a Cluster when a connection
// is opened: a Cluster would execute a script up to its first key that another server has.
type refuseCluster struct{}

// refusingCluster adds the hooks of a client of a single server to it, and returns it.
func refusingCluster(client *redis.Client) *redis.Client {
	keyNaming(client).AddHook(refuseCluster{})
	return client
}

func (refuseCluster) DialHook(next redis.DialHook) redis.DialHook { return next }

func (refuseCluster) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if hello, is := cmd.(*redis.MapStringInterfaceCmd); is && hello.Val()["mode"] == "cluster" {
			err = fmt.Errorf("connect: %w", errCluster) // go-redis unwraps the errors of new connections once
		}
		return err
	}
}

var errCluster = fmt.Errorf("%w: Redis URL: this Redis is a Cluster: write redis://HOST:PORT?cluster=true, "+
	"and the tenant in braces, such as {acme}", ErrInvalid)

func (refuseCluster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// EachPrimary calls f with each primary of a Cluster, or with the only server, one at a time. It returns an
// error of f.
func (s *Store) EachPrimary(ctx context.Context, f func(rdb redis.UniversalClient) error) error {
	all, is := s.pool.(interface {
		ForEachMaster(ctx context.Context, f func(ctx context.Context, node *redis.Client) error) error
	})
	if !is {
		return f(s.RDB)
	}
	var mu sync.Mutex
	return all.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(node)
	})
}
