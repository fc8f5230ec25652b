package wasi

// errno is what a function of WASI answers.
type errno uint16

// The errors of snapshot 01 that functions or tests use.
const (
	errnoSuccess     errno = 0
	errno2big        errno = 1
	errnoAcces       errno = 2
	errnoAgain       errno = 6
	errnoBadf        errno = 8
	errnoCanceled    errno = 11
	errnoConnreset   errno = 15
	errnoDquot       errno = 19
	errnoExist       errno = 20
	errnoFault       errno = 21
	errnoFbig        errno = 22
	errnoIlseq       errno = 25
	errnoInval       errno = 28
	errnoIo          errno = 29
	errnoIsdir       errno = 31
	errnoLoop        errno = 32
	errnoMfile       errno = 33
	errnoNametoolong errno = 37
	errnoNfile       errno = 41
	errnoNoent       errno = 44
	errnoNomem       errno = 48
	errnoNosys       errno = 52
	errnoNotdir      errno = 54
	errnoNotempty    errno = 55
	errnoNotsock     errno = 57
	errnoNotsup      errno = 58
	errnoOverflow    errno = 61
	errnoPerm        errno = 63
	errnoPipe        errno = 64
	errnoRange       errno = 68
	errnoRofs        errno = 69
	errnoSpipe       errno = 70
	errnoXdev        errno = 75
	errnoNotcapable  errno = 76
)
