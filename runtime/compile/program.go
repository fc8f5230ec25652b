package compile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/wasm"
)

// program is a rewritten module, which counts its own fuel. In this form modules are compiled and cached.
type program struct {
	key    string // key in the cache: the SHA-256 of the rewritten module, in hex
	digest string // digest of the module's file, for the log
	size   int    // size of the code section in the file, in bytes
	extism bool   // the module also needs the kernel
	source source
}

// kernel is the module that Extism plugins import from. It has no loops, so it need not count fuel.
var kernel = sync.OnceValue(func() *program {
	return &program{
		key: keyOf(abi.Kernel), digest: "sha256:" + keyOf(abi.Kernel), size: len(abi.Kernel),
		source: source{bytes.NewReader(abi.Kernel), int64(len(abi.Kernel))},
	}
})

// stagePrefix begins the names of temporary files and directories in the cache.
const stagePrefix = "stage-"

// source holds the rewritten module in an unlinked file. The file takes no memory while the module waits or is idle,
// survives changes to the plugin's file and the cache, and ends with the process. If no such file can be made, the
// module stays in memory.
type source struct {
	io.ReaderAt
	size int64
}

// newSource writes a rewritten module into an unlinked file in dir.
func newSource(dir string, binary []byte, logger hclog.Logger) source {
	size := int64(len(binary))
	file, err := os.CreateTemp(dir, stagePrefix+"source-") // removed like a stage if a crash leaves it behind
	if err == nil {
		_, err = file.Write(binary)
		err = errors.Join(err, os.Remove(file.Name()))
		if err == nil {
			return source{file, size}
		}
		err = errors.Join(err, file.Close())
	}
	logger.Warn("a module stays in memory: cannot write it to the compile cache", "error", err)
	return source{bytes.NewReader(binary), size}
}

func (s source) read() ([]byte, error) {
	binary := make([]byte, s.size)
	_, err := s.ReadAt(binary, 0)
	return binary, err
}

func (s source) close() error {
	if file, ok := s.ReaderAt.(*os.File); ok {
		return file.Close()
	}
	return nil
}

// The memory that wazero keeps of a module in addition to the contents of its sections, in bytes, as measured.
const (
	perLocal   = 8
	perElement = 48
	perEntry   = 170 // for an entry of a section: an exported global; a type takes 136, a function 100, an export 94
)

// metadataSize returns the maximum number of bytes that wazero keeps of a module in addition to its machine code. It
// adds an eighth to the contents, since Go rounds sizes up.
func metadataSize(module *wasm.Rewritten) int64 {
	contents := int64(len(module.Binary)) + perLocal*int64(module.Locals)
	return contents + contents/8 + perElement*int64(module.Elements) + perEntry*int64(module.Entries)
}

// keyOf returns the key of a rewritten module: its SHA-256 in hex.
func keyOf(binary []byte) string {
	sum := sha256.Sum256(binary)
	return hex.EncodeToString(sum[:])
}
