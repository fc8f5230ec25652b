// Package account bounds the memory that tenants and principals make a process hold beside its running tasks: bodies and
// answers of the API, payloads of webhooks, what plugins carry. One rule holds for all of it: memory is taken from the account
// before it is used, and given back afterwards.
//
//	Account ─┬─ Budget of a kind ─┬─ part of an owner ── Share, Share, …
//	         │                    └─ part of an owner ── Share
//	         └─ Budget of a kind …
//
// Take gives shares in the order in which they are asked for, so no stream of small ones starves a large one. Small ones that must
// pass large ones need a budget of their own.
//
// A Budget bounds what all owners use together, and what each of them uses, so that one cannot keep out the others: who asks waits
// until its context ends, or not at all.
//
// The memory of running tasks is host's admission, which counts what is reserved here as taken.
package account

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Kind is what memory is taken for, as the metric quern_memory_reserved_bytes names it.
type Kind string

// The kinds.
const (
	Tasks      Kind = "tasks"      // running tasks: kept by admission
	Requests   Kind = "requests"   // bodies and answers of the API, by principal
	Deliveries Kind = "deliveries" // payloads of webhooks, by tenant
	Calls      Kind = "calls"      // bodies and results that calls of handlers move, publications on their way; by tenant
	Plugins    Kind = "plugins"    // what modules carry and manifests name, by tenant
)

// Account is the memory of a process. Its methods may be called by many goroutines at once; on nil nothing is reserved.
type Account struct {
	total    int64 // 0: not bounded
	reserved atomic.Int64

	mu      sync.Mutex
	budgets map[Kind][]*Budget // guarded by mu
	freed   func()             // guarded by mu
}

// New returns the account of a process that has total bytes for tenants; 0 for no bound.
func New(total int64) *Account {
	return &Account{total: total, budgets: make(map[Kind][]*Budget), freed: func() {}}
}

// Part is one of n equal parts of the total, in bytes; it has no bound if the total has none.
func (a *Account) Part(n int64) int64 {
	if a.total == 0 {
		return math.MaxInt64
	}
	return max(1, a.total/n)
}

// Open begins a budget of a kind, as NewBudget does. A kind may have several.
func (a *Account) Open(kind Kind, whole int64, owners int) *Budget {
	b := NewBudget(whole, owners)
	b.account = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budgets[kind] = append(a.budgets[kind], b)
	return b
}

// OnFreed sets what is called whenever memory was given back (default: nothing). It must not block.
func (a *Account) OnFreed(freed func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = freed
}

// Reserved is the sum of all budgets, in bytes.
func (a *Account) Reserved() int64 {
	if a == nil {
		return 0
	}
	return a.reserved.Load()
}

// ByKind is what is reserved of each kind that was opened, in bytes.
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

// note counts a change of what is reserved.
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

// Budget bounds what is used at a time. Its methods may be called by many goroutines at once; on nil they take nothing and
// refuse nothing.
type Budget struct {
	account     *Account // nil: it stands alone
	whole, each int64
	own, shared int64 // what each owner alone may use, and what all may
	all         *semaphore.Weighted
	used        atomic.Int64

	mu      sync.Mutex
	byOwner map[string]*part // of the owners that use something or wait for it; guarded by mu
}

// part is what one owner uses.
type part struct {
	used  *semaphore.Weighted
	own   *semaphore.Weighted // the part that it alone may use: Budget.own
	users int                 // shares, and calls that wait for one; guarded by the budget's mu
}

// mostOwners bounds the parts of a budget: one owner may use a quarter of it, however many others there are.
const mostOwners = 4

// NewBudget returns a budget that is of no account, such as for connections. Up to four owners share it equally. Of more, one half
// is divided: each alone may use its part. The other half is for all; four can use it up.
func NewBudget(whole int64, owners int) *Budget {
	b := &Budget{whole: whole, each: max(1, whole/int64(min(max(owners, 1), mostOwners))), byOwner: make(map[string]*part)}
	if owners > mostOwners {
		b.own = whole / 2 / int64(owners)
	}
	b.shared = whole - b.own*int64(owners)
	b.all = semaphore.NewWeighted(b.shared)
	return b
}

// Whole is what all owners may use together.
func (b *Budget) Whole() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.whole
}

// Each is what one owner may use.
func (b *Budget) Each() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.each
}

// Share is what one user has taken. It belongs to one goroutine at a time. Its methods do nothing on nil.
type Share struct {
	budget *Budget
	owner  string
	part   *part
	own    bool // it comes from what the owner alone may use
	size   int64
}

// Take waits for a share, until ctx ends: nil then. If size is more than the owner's part, the share takes the whole part, so that
// nothing else of this owner is held beside it; of what owners share it takes its size, or all of it.
func (b *Budget) Take(ctx context.Context, owner string, size int64) *Share {
	return b.take(owner, size, func(s *semaphore.Weighted, size int64) bool { return s.Acquire(ctx, size) == nil })
}

// TryTake takes a share without waiting: nil if there is no room, or an owner's part is smaller.
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

// Size is what the share has now.
func (s *Share) Size() int64 {
	if s == nil {
		return 0
	}
	return s.size
}

// Shrink keeps only some of the share.
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

// Give gives all of the share back. It may be called again, which does nothing.
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
