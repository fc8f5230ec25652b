package wasi

// errno is what a function of WASI answers.
type errno uint16

// The errors of snapshot 01, in its order.
const (
	errnoSuccess errno = iota
	errno2big
	errnoAcces
	errnoAddrinuse
	errnoAddrnotavail
	errnoAfnosupport
	errnoAgain
	errnoAlready
	errnoBadf
	errnoBadmsg
	errnoBusy
	errnoCanceled
	errnoChild
	errnoConnaborted
	errnoConnrefused
	errnoConnreset
	errnoDeadlk
	errnoDestaddrreq
	errnoDom
	errnoDquot
	errnoExist
	errnoFault
	errnoFbig
	errnoHostunreach
	errnoIdrm
	errnoIlseq
	errnoInprogress
	errnoIntr
	errnoInval
	errnoIo
	errnoIsconn
	errnoIsdir
	errnoLoop
	errnoMfile
	errnoMlink
	errnoMsgsize
	errnoMultihop
	errnoNametoolong
	errnoNetdown
	errnoNetreset
	errnoNetunreach
	errnoNfile
	errnoNobufs
	errnoNodev
	errnoNoent
	errnoNoexec
	errnoNolck
	errnoNolink
	errnoNomem
	errnoNomsg
	errnoNoprotoopt
	errnoNospc
	errnoNosys
	errnoNotconn
	errnoNotdir
	errnoNotempty
	errnoNotrecoverable
	errnoNotsock
	errnoNotsup
	errnoNotty
	errnoNxio
	errnoOverflow
	errnoOwnerdead
	errnoPerm
	errnoPipe
	errnoProto
	errnoProtonosupport
	errnoPrototype
	errnoRange
	errnoRofs
	errnoSpipe
	errnoSrch
	errnoStale
	errnoTimedout
	errnoTxtbsy
	errnoXdev
	errnoNotcapable
)
