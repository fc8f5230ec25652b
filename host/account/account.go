// Package account bounds the memory that a process uses for tenants and principals besides running tasks: bodies and
// answers of the API, payloads of webhooks, files that plugins carry. One rule holds for all such memory: it is taken
// from the account before it is used, and given back afterwards.
//
//	Account ─┬─ Budget of a kind ─┬─ part of an owner ── Share, Share, …
//	         │                    └─ part of an owner ── Share
//	         └─ Budget of a kind …
//
// Take gives shares in the order of the calls, so that a stream of small shares cannot starve a large one. Small shares
// that must not wait behind large ones need a separate budget.
//
// A Budget bounds what all owners use together, and what each owner uses, so that no owner can take everything from the
// others. Take waits for a share until its context ends; TryTake does not wait.
//
// Admission, in package schedule, counts the memory of running tasks; it treats memory that is reserved here as used.
package account

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Kind says what memory is used for; it is a label of the metric quern_memory_reserved_bytes.
type Kind string

// The kinds of memory.
const (
	Tasks      Kind = "tasks"      // running tasks; admission counts them
	Requests   Kind = "requests"   // bodies and answers of the API; owner: the principal
	Deliveries Kind = "deliveries" // payloads of webhooks; owner: the tenant
	// bodies and results of handlers' calls, and publications that are being published; owner: the tenant
	Calls   Kind = "calls"
	Plugins Kind = "plugins" // files that modules carry or manifests name, descriptions of modules; owner: the tenant
)

// Account counts the memory that a process has reserved. Its methods are safe for concurrent use. A nil Account
// reserves nothing.
type Account struct {
	total    int64 // in bytes; 0: no bound
	reserved atomic.Int64

	mu      sync.Mutex
	budgets map[Kind][]*Budget // guarded by mu
	freed   func()             // see OnFreed; guarded by mu
}

// New returns the account of a process that has total bytes for tenants (0: no bound).
func New(total int64) *Account {
	return &Account{total: total, budgets: make(map[Kind][]*Budget), freed: func() {}}
}

// Part returns one of n equal parts of the total, in bytes, or math.MaxInt64 if the total has no bound.
func (a *Account) Part(n int64) int64 {
	if a.total == 0 {
		return math.MaxInt64
	}
	return max(1, a.total/n)
}

// Open returns a new budget of a kind, with the bounds of NewBudget. A kind can have several budgets.
func (a *Account) Open(kind Kind, whole int64, owners int) *Budget {
	b := NewBudget(whole, owners)
	b.account = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budgets[kind] = append(a.budgets[kind], b)
	return b
}

// OnFreed sets a function that is called whenever memory is given back (default: none). It must not block.
func (a *Account) OnFreed(freed func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = freed
}

// Reserved returns how many bytes are taken from all budgets.
func (a *Account) Reserved() int64 {
	if a == nil {
		return 0
	}
	return a.reserved.Load()
}

// ByKind returns how many bytes are taken from the budgets of each kind that was opened.
func (a *Account) ByKind() map[Kind]int64 {
	byKind := make(map[Kind]int64)
	if a == nil {
		return byKind
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind, budgets := range a.budgets {
		for _, b := range budgets {
			byKind[kind] += b.used.Load()
		}
	}
	return byKind
}

// note adds bytes, which can be negative, to the reserved bytes. It calls freed if bytes is negative.
func (a *Account) note(bytes int64) {
	if a == nil {
		return
	}
	a.reserved.Add(bytes)
	if bytes < 0 {
		a.mu.Lock()
		freed := a.freed
		a.mu.Unlock()
		freed()
	}
}

// Budget bounds how much its owners use at the same time, in bytes or in another unit. Its methods are safe for
// concurrent use. A nil Budget has no bound.
type Budget struct {
	account *Account // nil if the budget belongs to no account
	// whole is what all owners can use together, and each what one owner can use.
	whole, each int64
	own, shared int64 // what is set aside for each single owner, and what all owners share
	all         *semaphore.Weighted
	used        atomic.Int64

	mu      sync.Mutex
	byOwner map[string]*part // the owners that have a share or wait for one; guarded by mu
}

// part counts what one owner uses of a budget.
type part struct {
	used  *semaphore.Weighted
	own   *semaphore.Weighted // what the owner uses of Budget.own, which is set aside for it
	users int                 // number of shares, and of calls that wait for a share; guarded by the budget's mu
}

// maxOwners is how many owners share a budget equally. If there are more, each can use a quarter of it at most.
const maxOwners = 4

// NewBudget returns a budget that belongs to no account, such as one for connections. Up to four owners share it
// equally. With more owners, one half of it is set aside in equal parts, one for each owner alone. All owners share the
// other half; two owners can use it up.
func NewBudget(whole int64, owners int) *Budget {
	b := &Budget{whole: whole, each: max(1, whole/int64(min(max(owners, 1), maxOwners))), byOwner: make(map[string]*part)}
	if owners > maxOwners {
		b.own = whole / 2 / int64(owners)
	}
	b.shared = whole - b.own*int64(owners)
	b.all = semaphore.NewWeighted(b.shared)
	return b
}

// Whole returns how much all owners can use together.
func (b *Budget) Whole() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.whole
}

// Each returns how much one owner can use.
func (b *Budget) Each() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.each
}

// Share is an amount that was taken from a budget. It belongs to one goroutine at a time. The methods of a nil Share do
// nothing.
type Share struct {
	budget *Budget
	owner  string
	part   *part
	own    bool // the share is taken from what is set aside for its owner
	size   int64
}

// Take waits for a share of that size. It returns nil if ctx ends first. If size is more than one owner can use, the
// share takes all that its owner can use, so that the owner has no other share meanwhile. Of what all owners share, it
// takes size or, if that is too much, everything.
func (b *Budget) Take(ctx context.Context, owner string, size int64) *Share {
	return b.take(owner, size, func(s *semaphore.Weighted, size int64) bool { return s.Acquire(ctx, size) == nil })
}

// TryTake takes a share without waiting. It returns nil if there is no room, or if size is more than one owner can use.
func (b *Budget) TryTake(owner string, size int64) *Share {
	if b != nil && size > b.each {
		return nil
	}
	return b.take(owner, size, (*semaphore.Weighted).TryAcquire)
}

func (b *Budget) take(owner string, size int64, acquire func(s *semaphore.Weighted, size int64) bool) *Share {
	if b == nil {
		return &Share{size: size}
	}
	b.mu.Lock()
	p := b.byOwner[owner]
	if p == nil {
		p = &part{used: semaphore.NewWeighted(b.each), own: semaphore.NewWeighted(b.own)}
		b.byOwner[owner] = p
	}
	p.users++
	b.mu.Unlock()
	s := &Share{budget: b, owner: owner, part: p}
	if acquire(p.used, min(size, b.each)) {
		s.own = size <= b.own && p.own.TryAcquire(size)
		if s.own || acquire(b.all, min(size, b.shared)) {
			s.size = size
			b.used.Add(size)
			b.account.note(size)
			return s
		}
		p.used.Release(min(size, b.each))
	}
	s.Give()
	return nil
}

// Size returns the size that the share has now.
func (s *Share) Size() int64 {
	if s == nil {
		return 0
	}
	return s.size
}

// Shrink gives back a part of the share, so that its new size is size. It does nothing if the share is not larger.
func (s *Share) Shrink(size int64) {
	if s == nil || size >= s.size {
		return
	}
	freed := s.size - size
	s.size = size
	if b := s.budget; b != nil {
		if s.own {
			s.part.own.Release(freed)
		} else {
			b.all.Release(min(size+freed, b.shared) - min(size, b.shared))
		}
		s.part.used.Release(min(size+freed, b.each) - min(size, b.each))
		b.used.Add(-freed)
		b.account.note(-freed)
	}
}

// Give gives the whole share back. Further calls of Give do nothing.
func (s *Share) Give() {
	if s == nil || s.part == nil {
		return
	}
	s.Shrink(0)
	b, p := s.budget, s.part
	s.part = nil
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(b.byOwner, s.owner)
	}
}
