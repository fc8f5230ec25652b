//go:build amd64 || arm64

package confine

func process(rules []Rule) Confinement {
	files := restrictFiles(rules) // first: the filter forbids its calls
	return Confinement{Calls: filterCalls(), Files: files}
}
