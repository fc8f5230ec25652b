package runtime

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// saying is a handler that reads its secret, and says it behind as many letters as its input tells, in the way that this names
// first: a log line, its progress, a line of standard error, progress there, or its error.
const saying = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "quern.h"
static char input[64], text[200000];
QUERN_HANDLER int32_t handle(void) {
	input[quern_input_read(0, input, sizeof input - 1)] = 0;
	char way = input[0];
	int size = 0, before = atoi(input + 1);
	if (way == 'p' || way == 'P') size = way == 'p' ? 0 : sprintf(text, "quern:progress=0.5 ");
	memset(text + size, 'x', before);
	size += before;
	size += quern_result_read(0, text + size, quern_secret_get("tok", 3));
	if (strchr(input, '+')) memset(text + size, 'y', 5000), size += 5000;
	switch (way) {
	case 'l': quern_log(QUERN_INFO, text, size, NULL, 0); return 0;
	case 'p': quern_progress(0.5, text, size); return 0;
	case 'e': quern_error_set(text, size); return 1;
	default: fwrite(text, 1, size, stderr); fputc('\n', stderr); return way == 'E';
	}
}`

// TestNoSecretIsCut: where a text of a guest is too long, it is cut so that no byte of a secret is left: at the bounds of the
// host's, and at those of 4 KiB and below that functions or SDKs might have.
func TestNoSecretIsCut(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildCHandler(t, saying))
	bounds := map[string][]int{
		"l": {1 << 10, 4 << 10, maxLine, 2 * maxLine, maxLogged}, "p": {maxProgress, 4 << 10}, "P": {maxProgress}, "e": {maxHeadline - 15, maxError, maxLogged},
		"s": {maxTail, maxLine, 3 * maxLine}, "E": {maxHeadline - 15, maxTail, maxLine},
	}
	tested := 0
	for _, secret := range []string{"QZKWJVQZ", "QZKWJVXGQYZKWJVQ", strings.Repeat("QZKWJVXGWY", 20)} {
		for way, places := range bounds {
			for _, place := range places {
				for _, inside := range []int{1, 4, 7, len(secret) - 1, len(secret)} {
					for _, more := range []string{"", "+"} {
						input := fmt.Sprint(way, max(0, place-inside), more)
						var said []string
						got := bound(module, "pool", Profile{}).Run(t.Context(), Call{
							Input: []byte(input), Log: func(line string) { said = append(said, line) },
							Progress: func(_ float64, message string) { said = append(said, message) },
							Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) { return []byte(secret), nil })},
						})
						all := strings.Join(said, "\n") + got.Message + got.Stderr
						if strings.ContainsAny(strings.ReplaceAll(all, "[secret tok]", ""), "QZKWJV") || !strings.Contains(all, "xxx") {
							t.Errorf("%s with a secret of %d bytes: %s, message %.5000q, lines %.9000q", input, len(secret), got.Kind, got.Message, said)
						}
						tested++
					}
				}
			}
		}
	}
	t.Logf("%d texts", tested)
}
