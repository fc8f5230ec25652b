package wasi

// errno is the result of a function of WASI.
type errno uint16

// The errors of snapshot 01 that functions return.
const (
	errnoSuccess     errno = 0
	errnoBadf        errno = 8
	errnoExist       errno = 20
	errnoFault       errno = 21
	errnoFbig        errno = 22
	errnoIlseq       errno = 25
	errnoInval       errno = 28
	errnoIsdir       errno = 31
	errnoMfile       errno = 33
	errnoNametoolong errno = 37
	errnoNoent       errno = 44
	errnoNotdir      errno = 54
	errnoNotsock     errno = 57
	errnoNotsup      errno = 58
	errnoOverflow    errno = 61
	errnoPerm        errno = 63
	errnoRofs        errno = 69
	errnoSpipe       errno = 70
)
