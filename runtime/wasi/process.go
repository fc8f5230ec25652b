package wasi

import "github.com/tetratelabs/wazero/api"

// argsGet implements args_get(argv, argv_buf). environGet implements environ_get(environ, environ_buf).
func (s *System) argsGet(mem api.Memory, a []uint64) errno    { return s.list(mem, s.args, a) }
func (s *System) environGet(mem api.Memory, a []uint64) errno { return s.list(mem, s.env, a) }

// argsSizesGet implements args_sizes_get(result argc, result argv_buf_size). environSizesGet implements the same for
// the environment.
func (s *System) argsSizesGet(mem api.Memory, a []uint64) errno    { return s.sizes(mem, s.args, a) }
func (s *System) environSizesGet(mem api.Memory, a []uint64) errno { return s.sizes(mem, s.env, a) }

// size returns the total size of the strings in bytes, each with a NUL after it.
func size(list []string) uint64 {
	total := uint64(0)
	for _, text := range list {
		total += uint64(len(text)) + 1
	}
	return total
}

func (s *System) sizes(mem api.Memory, list []string, a []uint64) errno {
	total := size(list)
	if total != uint64(uint32(total)) {
		return errnoOverflow
	}
	if _, ok := view(mem, uint32(a[1]), 4); !ok {
		return errnoFault
	}
	if e := put32(mem, uint32(a[0]), uint32(len(list))); e != errnoSuccess {
		return e
	}
	return put32(mem, uint32(a[1]), uint32(total))
}

// list writes the strings one after another to the address a[1], and a pointer to each to the address a[0].
func (s *System) list(mem api.Memory, list []string, a []uint64) errno {
	total := size(list)
	pointers, ok := view(mem, uint32(a[0]), uint64(len(list))*4)
	buffer, fits := view(mem, uint32(a[1]), total)
	if !ok || !fits {
		return errnoFault
	}
	s.host.Spend(len(pointers) + len(buffer))
	at := uint32(a[1])
	for i, text := range list {
		le.PutUint32(pointers[i*4:], at)
		copy(buffer, text)
		buffer[len(text)] = 0
		buffer = buffer[len(text)+1:]
		at += uint32(len(text)) + 1
	}
	return errnoSuccess
}

// randomPiece is the maximum number of random bytes made between two calls of Host.Spend, which can end the guest.
const randomPiece = 64 << 10

// randomGet implements random_get(buf, buf_len).
func (s *System) randomGet(mem api.Memory, a []uint64) errno {
	buffer, ok := view(mem, uint32(a[0]), uint64(uint32(a[1])))
	if !ok {
		return errnoFault
	}
	for len(buffer) > 0 {
		piece := buffer[:min(len(buffer), randomPiece)]
		s.host.Spend(len(piece))
		s.tape.Random(piece)
		buffer = buffer[len(piece):]
	}
	return errnoSuccess
}

// procExit implements proc_exit(code).
func procExit(s *System, _ api.Memory, stack []uint64) { s.host.Exit(uint32(stack[0])) }

// procRaise implements proc_raise(sig). There are no signals.
func (s *System) procRaise(api.Memory, []uint64) errno { return errnoNotsup }

// schedYield implements sched_yield().
func (s *System) schedYield(api.Memory, []uint64) errno {
	s.host.Wait(0)
	return errnoSuccess
}
