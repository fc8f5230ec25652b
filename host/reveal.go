package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/runtime"
)

// Revealed are the secrets that a task was given. A task's own words go to logs and to Redis: what is known to be a
// secret is taken out of them. What the handler has changed, encoded or cut into pieces is not known. It belongs to the
// goroutine of the task's call; its zero value is that of a task that was given none.
type Revealed struct {
	given    map[string]string // values by name
	names    map[string]string // by what is hidden: a line of a value, or how that stands in quotes
	secrets  []revealedText    // the same, the longest first; nil if there is another one since
	replacer *strings.Replacer // of them
}

// revealedText is a secret, a line of one, or one of these as it stands in JSON.
type revealedText struct{ text, name string }

// leastHidden is how many bytes such a text has at least: shorter ones stand in many words.
const leastHidden = 8

// Add notes that the task was given a secret.
func (r *Revealed) Add(name string, value []byte) {
	if known, ok := r.given[name]; ok && known == string(value) {
		return
	}
	if r.given == nil {
		r.given, r.names = map[string]string{}, map[string]string{}
	}
	r.given[name], r.secrets, r.replacer = string(value), nil, nil
	for line := range strings.Lines(string(value)) { // words of a log have no more than one
		line = strings.TrimRight(line, "\r\n")
		for _, text := range append(quotedForms(line), line) {
			if _, known := r.names[text]; len(text) >= leastHidden && !known {
				r.names[text] = name
			}
		}
	}
}

// quotedForms are what a line may look like between the quotes of JSON, as Go and others write it, and in a refusal.
func quotedForms(line string) []string {
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(line) // a string always can be
	html, _ := json.Marshal(line)
	inner := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	form := inner(strings.TrimSuffix(plain.String(), "\n"))
	return []string{
		form, inner(string(html)), strings.ReplaceAll(form, "/", `\/`), inner(strconv.Quote(line)), inner(strconv.QuoteToASCII(line)),
	}
}

// prepare makes ready to hide what was added.
func (r *Revealed) prepare() {
	for text, name := range r.names {
		r.secrets = append(r.secrets, revealedText{text, name})
	}
	// Of two that begin alike the longer one is hidden.
	slices.SortFunc(r.secrets, func(a, b revealedText) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	pairs := make([]string, 0, 2*len(r.secrets))
	for _, s := range r.secrets {
		pairs = append(pairs, s.text, s.shown())
	}
	r.replacer = strings.NewReplacer(pairs...)
}

// Hide is a text with the names of the secrets in their places. It may have been cut at either end, within a secret.
func (r *Revealed) Hide(text string) string {
	if len(r.names) == 0 {
		return text
	}
	if r.replacer == nil {
		r.prepare()
	}
	text, cut := strings.CutSuffix(r.replacer.Replace(text), "…")
	for _, s := range r.secrets {
		text = s.hideEnds(text)
	}
	if cut {
		text += "…"
	}
	return text
}

func (s revealedText) shown() string { return "[secret " + s.name + "]" }

// hideEnds hides the end of the secret where the text begins, and its beginning where the text ends.
func (s revealedText) hideEnds(text string) string {
	for n := min(len(s.text)-1, len(text)); n >= leastHidden; n-- {
		if rest, ok := strings.CutPrefix(text, s.text[len(s.text)-n:]); ok {
			text = s.shown() + rest
			break
		}
	}
	for n := min(len(s.text)-1, len(text)); n >= leastHidden; n-- {
		if rest, ok := strings.CutSuffix(text, s.text[:n]); ok {
			text = rest + s.shown()
			break
		}
	}
	return text
}

// cover hides them in what is told of the end of the task. The result is the handler's to decide.
func (r *Revealed) cover(o *runtime.Outcome) {
	o.Message, o.Stderr = r.Hide(o.Message), r.Hide(o.Stderr)
	if o.Kind == runtime.HostFault && o.Err != nil { // its words may be the guest's
		if text := o.Err.Error(); r.Hide(text) != text {
			o.Err = errors.New(r.Hide(text))
		}
	}
}
