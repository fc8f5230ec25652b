package runtime

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasm"
)

// The remedies for files that cannot be served: how to build a module, and how to copy it.
const (
	buildCommand = "build a core module that exports _start " +
		"(Go: GOOS=wasip1 GOARCH=wasm go build; Rust: --target wasm32-wasip1; C: clang --target=wasm32-wasi)"
	copyAgain = "build it again, or copy it again and rename it into place when it is whole"
)

// sniff refuses a file that is not a core module, and says what it is instead. It reads at most the first kibibyte.
func sniff(file []byte) *RefusedError {
	switch {
	case len(file) == 0:
		return refuse("the file is empty", "", copyAgain)
	case bytes.HasPrefix(file, []byte(wasm.Magic)):
		return sniffVersion(file)
	case len(file) < len(wasm.Magic) && strings.HasPrefix(wasm.Magic, string(file)):
		return truncated(len(file))
	}
	if known := cmp.Or(sniffBinary(file), sniffText(file)); known != nil {
		return refuse("not a WebAssembly module but "+known.what, "", known.remedy)
	}
	return refuse(fmt.Sprintf("not a WebAssembly module: it begins with % x instead of 00 61 73 6d",
		file[:min(len(file), 4)]), "", buildCommand)
}

// sniffVersion checks the two numbers after the magic: a version and a layer, 16 bits each.
func sniffVersion(file []byte) *RefusedError {
	if len(file) < wasm.HeaderSize {
		return truncated(len(file))
	}
	version := binary.LittleEndian.Uint16(file[4:])
	layer := binary.LittleEndian.Uint16(file[6:])
	switch {
	case layer == 1:
		return refuse("a WebAssembly component (WASI 0.2), not a core module", "header",
			buildCommand+"; or take the core module out with wasm-tools component unbundle")
	case layer != 0 || version != 1:
		return refuse(fmt.Sprintf("WebAssembly version %d of layer %d is unknown", version, layer), "header",
			"only version 1 of layer 0 can be served: "+buildCommand)
	default:
		return nil
	}
}

func truncated(size int) *RefusedError {
	return refuse(fmt.Sprintf("a truncated WebAssembly module: it ends after %d bytes", size), "", copyAgain)
}

// format is a kind of file that people mistake for a module. prefix is how such a file begins.
type format struct{ prefix, what, remedy string }

// find returns the first format whose prefix the file has, or nil if there is none.
func find(formats []format, file string) *format {
	if i := slices.IndexFunc(formats, func(f format) bool { return strings.HasPrefix(file, f.prefix) }); i >= 0 {
		return &formats[i]
	}
	return nil
}

// sniffBinary recognizes binary formats.
func sniffBinary(file []byte) *format {
	const native = "compile it for WebAssembly: "
	formats := []format{
		{"\x7fELF", "a Linux program (ELF)", native + buildCommand},
		{"\xfe\xed\xfa\xce", "a macOS program (Mach-O)", native + buildCommand},
		{"\xfe\xed\xfa\xcf", "a macOS program (Mach-O)", native + buildCommand},
		{"\xce\xfa\xed\xfe", "a macOS program (Mach-O)", native + buildCommand},
		{"\xcf\xfa\xed\xfe", "a macOS program (Mach-O)", native + buildCommand},
		{"\xca\xfe\xba\xbe", "a macOS program (Mach-O) or a Java class", native + buildCommand},
		{"MZ", "a Windows program (PE)", native + buildCommand},
		{"!<arch>\n", "a static library (ar)", "link it into a program: " + buildCommand},
		{"BC\xc0\xde", "LLVM bitcode", "compile it without -emit-llvm: " + buildCommand},
		{"\x1f\x8b", "a gzip file", "unpack it with gunzip"},
		{"PK\x03\x04", "a zip file", "unpack it with unzip"},
		{"\x28\xb5\x2f\xfd", "a zstd file", "unpack it with unzstd"},
		{"\xfd7zXZ\x00", "an xz file", "unpack it with unxz"},
		{"BZh", "a bzip2 file", "unpack it with bunzip2"},
	}
	const tarMagic = 257 // the offset of the magic in a tar file
	if len(file) > tarMagic && bytes.HasPrefix(file[tarMagic:], []byte("ustar")) {
		formats = append(formats, format{"", "a tar file", "unpack it with tar -x"})
	}
	return find(formats, string(file[:min(len(file), maxText)]))
}

// maxText is the maximum number of bytes of a file that sniff reads.
const maxText = 1024

// sniffText recognizes texts: UTF-8 without control characters other than white space.
func sniffText(file []byte) *format {
	head := file[:min(len(file), maxText)]
	if len(file) > maxText {
		head = redact.Prefix(head, maxText-1)
	}
	isControl := func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }
	if !utf8.Valid(head) || bytes.ContainsFunc(head, isControl) {
		return nil
	}
	text := strings.TrimLeftFunc(strings.TrimPrefix(string(head), "\ufeff"), unicode.IsSpace)
	compile := "compile it to WebAssembly: " + buildCommand
	formats := []format{
		{"(module", "a WebAssembly text file (WAT)", "assemble it with wat2wasm or wasm-tools parse"},
		{"(component", "a WebAssembly component as text (WAT)", buildCommand},
		{";;", "a WebAssembly text file (WAT)", "assemble it with wat2wasm or wasm-tools parse"},
		{"(;", "a WebAssembly text file (WAT)", "assemble it with wat2wasm or wasm-tools parse"},
		{"#!", "a script", compile},
		{"version https://git-lfs", "a Git LFS pointer", "fetch the file itself with git lfs pull"},
		{"<", "an HTML or XML page", "download the file itself; this may be an error page"},
		{"{", "a JSON file", "download the file itself; this may be an error message"},
		{"package ", "Go source text", compile},
		{"#include", "C source text", compile},
		{"import ", "source text", compile},
		{"export ", "source text", compile},
		{"const ", "source text", compile},
		{"function ", "source text", compile},
		{"use ", "source text", compile},
		{"", "a text file", compile},
	}
	return find(formats, text)
}
