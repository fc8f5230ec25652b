package confine

const fstatat = "newfstatat"

// ofProcessor are calls that other processors do not have: the first is Go's for its threads, the others
// the C library's, where the program is linked with it.
var ofProcessor = []string{"arch_prctl", "access", "readlink", "poll"}
