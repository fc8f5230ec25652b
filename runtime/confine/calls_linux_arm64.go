package confine

const fstatat = "fstatat"

// ofProcessor are calls that other processors do not have.
var ofProcessor []string
