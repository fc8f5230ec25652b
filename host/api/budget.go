package api

import (
	"context"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// patience is how long a request waits at most for a share of a budget.
	patience = 2 * time.Second
	// A transfer of n bytes may take slowGrace plus n/slowRate seconds. A slower client loses its connection, which frees
	// its share of the memory.
	slowGrace = 5 * time.Second
	slowRate  = 256 << 10
)

// bounded limits how many things of one kind, such as open streams, exist at one time. The limit is for all owners
// together and for each owner, so that no owner keeps out the others. Without tokens there is one principal, which may
// use everything.
type bounded struct {
	*account.Budget
	what string // the kind in the plural, for error messages
}

func (s *service) newBounded(what string, whole int64) bounded {
	return bounded{account.NewBudget(whole, s.owners()), what}
}

// owners returns the number of parts into which a budget is divided. An owner may use one part.
func (s *service) owners() int {
	if s.config.Access == nil {
		return 1
	}
	return parts
}

// take waits for a share of a budget, for no longer than the constant patience. It returns nil if there is no share by
// then.
func take(ctx context.Context, from *account.Budget, who *Principal, size int64) *account.Share {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return from.Take(ctx, who.owner(), size)
}

// enter takes one place for the principal of the request. It returns an error if this principal, or all principals
// together, have all their places in use.
func (b *bounded) enter(ctx context.Context) (*account.Share, error) {
	who := principal(ctx)
	if s := take(ctx, b.Budget, who, 1); s != nil {
		return s, nil
	}
	whose := who.Name
	if len(who.Tenants) > 0 {
		whose += " and all who see the same tenants"
	}
	return nil, later(http.StatusTooManyRequests, failed(http.StatusTooManyRequests,
		"too many %s at a time: %d of %s, or %d of all",
		b.what, b.Each(), whose, b.Whole()), nil)
}

const (
	// pageBytes bounds the JSON of one page of a list. The page ends with the entry that reaches the bound.
	pageBytes = 4 << 20
	// listCost is the memory to reserve for a list: for what is read from Redis at a time, the entries, their JSON, and
	// the copy kept for the ETag.
	listCost = 4 * pageBytes
	// treeCost is the memory to reserve for a tree.
	treeCost = 5 * manage.TreeBytes
)

// valueAnswer returns the memory to reserve for an answer that is one value: 3 × the value's bytes (read, decoded,
// being sent).
func valueAnswer(size int64) int64 { return 3 * size }

// jsonAnswer returns the memory to reserve for an answer with payloads: three times size, the bytes of the payloads
// (read, decoded, as text), and four times text, the bytes of their JSON (a growing buffer, and the copy kept for the
// ETag).
func jsonAnswer(size, text int64) int64 { return 3*size + 4*text }

// escaped returns an upper bound for the bytes that texts take as JSON.
func escaped[T string | []byte](texts ...T) (size int64) {
	for _, text := range texts {
		size += int64(len(text))
		var whole bool
		switch text := any(text).(type) { // without a copy
		case string:
			whole = utf8.ValidString(text)
		case []byte:
			whole = utf8.Valid(text)
		}
		for i := range len(text) {
			switch b := text[i]; {
			case b < ' ' || b == 0x7f || b >= 0x80 && !whole:
				size += 5
			case b == 0xe2: // may begin U+2028 or U+2029, whose three bytes become six
				size += 3
			case b == '"' || b == '\\':
				size++
			}
		}
	}
	return size
}

// pace returns how long a transfer of this many bytes may take.
func pace(size int64) time.Duration { return slowGrace + time.Duration(size)*time.Second/slowRate }

// pacedBody extends the read deadline of a body as bytes arrive.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time
	read    int64
}

func (b *pacedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.read += int64(n)
	until := b.began.Add(pace(b.read))
	if err == io.EOF {
		until = time.Time{} // no deadline: it would end the operation
	}
	_ = b.control.SetReadDeadline(until) // every connection has a read deadline
	return n, err
}
