package wasi

import "github.com/tetratelabs/wazero/api"

// ModuleName is the name of the module from which guests import the functions of WASI preview 1.
const ModuleName = "wasi_snapshot_preview1"

// Function is a function that guests can import. Call reads its parameters from the stack and leaves its results there;
// mem is the guest's memory.
type Function struct {
	Name            string
	Params, Results []api.ValueType
	Call            func(s *System, mem api.Memory, stack []uint64)
}

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// Functions lists all of WASI preview 1, in the order of its description.
func Functions() []Function {
	return []Function{
		answering("args_get", (*System).argsGet, i32, i32),
		answering("args_sizes_get", (*System).argsSizesGet, i32, i32),
		answering("environ_get", (*System).environGet, i32, i32),
		answering("environ_sizes_get", (*System).environSizesGet, i32, i32),
		answering("clock_res_get", (*System).clockResGet, i32, i32),
		answering("clock_time_get", (*System).clockTimeGet, i32, i64, i32),
		answering("fd_advise", (*System).fdAdvise, i32, i64, i64, i32),
		answering("fd_allocate", (*System).fdAllocate, i32, i64, i64),
		answering("fd_close", (*System).fdClose, i32),
		answering("fd_datasync", always(errnoSuccess), i32), // writes have reached the host already
		answering("fd_fdstat_get", (*System).fdFdstatGet, i32, i32),
		answering("fd_fdstat_set_flags", (*System).fdFdstatSetFlags, i32, i32),
		answering("fd_fdstat_set_rights", always(errnoNotsup), i32, i64, i64),
		answering("fd_filestat_get", (*System).fdFilestatGet, i32, i32),
		answering("fd_filestat_set_size", (*System).fdFilestatSetSize, i32, i64),
		answering("fd_filestat_set_times", (*System).fdFilestatSetTimes, i32, i64, i64, i32),
		answering("fd_pread", (*System).fdPread, i32, i32, i32, i64, i32),
		answering("fd_prestat_get", (*System).fdPrestatGet, i32, i32),
		answering("fd_prestat_dir_name", (*System).fdPrestatDirName, i32, i32, i32),
		answering("fd_pwrite", (*System).fdPwrite, i32, i32, i32, i64, i32),
		answering("fd_read", (*System).fdRead, i32, i32, i32, i32),
		answering("fd_readdir", (*System).fdReaddir, i32, i32, i32, i64, i32),
		answering("fd_renumber", (*System).fdRenumber, i32, i32),
		answering("fd_seek", (*System).fdSeek, i32, i64, i32, i32),
		answering("fd_sync", always(errnoSuccess), i32),
		answering("fd_tell", (*System).fdTell, i32, i32),
		answering("fd_write", (*System).fdWrite, i32, i32, i32, i32),
		answering("path_create_directory", (*System).pathCreateDirectory, i32, i32, i32),
		answering("path_filestat_get", (*System).pathFilestatGet, i32, i32, i32, i32, i32),
		answering("path_filestat_set_times", (*System).pathFilestatSetTimes, i32, i32, i32, i32, i64, i64, i32),
		answering("path_link", (*System).pathLink, i32, i32, i32, i32, i32, i32, i32),
		answering("path_open", (*System).pathOpen, i32, i32, i32, i32, i32, i64, i64, i32, i32),
		answering("path_readlink", (*System).pathReadlink, i32, i32, i32, i32, i32, i32),
		answering("path_remove_directory", (*System).pathRemoveDirectory, i32, i32, i32),
		answering("path_rename", (*System).pathRename, i32, i32, i32, i32, i32, i32),
		answering("path_symlink", (*System).pathSymlink, i32, i32, i32, i32, i32),
		answering("path_unlink_file", (*System).pathUnlinkFile, i32, i32, i32),
		answering("poll_oneoff", (*System).pollOneoff, i32, i32, i32, i32),
		{Name: "proc_exit", Params: []api.ValueType{i32}, Call: procExit},
		answering("proc_raise", (*System).procRaise, i32),
		answering("sched_yield", (*System).schedYield),
		answering("random_get", (*System).randomGet, i32, i32),
		answering("sock_accept", always(errnoNotsock), i32, i32, i32), // there is no network
		answering("sock_recv", always(errnoNotsock), i32, i32, i32, i32, i32, i32),
		answering("sock_send", always(errnoNotsock), i32, i32, i32, i32, i32),
		answering("sock_shutdown", always(errnoNotsock), i32, i32),
	}
}

// answering makes a function whose only result is an errno.
func answering(name string, f func(*System, api.Memory, []uint64) errno, params ...api.ValueType) Function {
	return Function{
		Name:    name,
		Params:  params,
		Results: []api.ValueType{i32},
		Call: func(s *System, mem api.Memory, stack []uint64) {
			stack[0] = uint64(f(s, mem, stack[:len(params)]))
		},
	}
}

// always makes a function whose first parameter is a descriptor. The function returns answer for every open descriptor.
func always(answer errno) func(*System, api.Memory, []uint64) errno {
	return func(s *System, _ api.Memory, a []uint64) errno {
		if s.descriptor(a[0]) == nil {
			return errnoBadf
		}
		return answer
	}
}
