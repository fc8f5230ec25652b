package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// bar shows how many tasks have finished: on a terminal as a bar that fills, elsewhere as a new line for each task.
type bar struct {
	out         io.Writer
	redraws     bool
	done, total int
}

const barWidth = 40

func newBar(out io.Writer, total int) *bar {
	b := &bar{out: out, redraws: isTerminal(out), total: total}
	if b.redraws {
		b.draw()
	}
	return b
}

// step counts one more finished task.
func (b *bar) step() {
	b.done++
	b.draw()
}

// end ends the line of the bar, full or not.
func (b *bar) end() {
	if b.redraws {
		fmt.Fprintln(b.out)
	}
}

func (b *bar) draw() {
	filled := b.done * barWidth / b.total
	line := fmt.Sprintf("[%s%s] %*d of %d finished",
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), len(fmt.Sprint(b.total)), b.done, b.total)
	if b.redraws {
		fmt.Fprint(b.out, "\r"+line)
	} else {
		fmt.Fprintln(b.out, line)
	}
}

// isTerminal reports whether out is a terminal, more or less: a device other than the null device.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && file.Name() != os.DevNull
}
