package dashboards

// Dashboard is one page of Grafana.
type Dashboard struct {
	Name        string // the name of its file; the UID is quern-NAME
	Title       string
	Description string
	Variables   []Variable // beside the data source
	Rows        []Row
}

// Variable is a label whose values the reader picks: any number of them, at first all.
type Variable struct {
	Label string
	Query string // in the words of Grafana: label_values(SELECTOR, LABEL)
}

// Row is a line of panels below a heading; it breaks where they are wider than Grafana's 24 columns.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a chart, a number or a table.
type Panel struct {
	Kind        Kind
	Title       string
	Description string // what it shows and when to worry
	Unit        Unit
	Width       int // in columns; 0: 8 for a chart, 4 for a number, 24 for a table
	Stack       bool
	Names       bool // a number shows the name of its series, not the value
	// Values are yellow from Warn on, and red from Bad on; 0 leaves the color out.
	Warn, Bad float64
	Queries   []Query
	// Leads names the dashboard that a click on a series opens, with the labels as its variables. Default "": none.
	Leads  string
	Labels []string
}

func chart(title string, unit Unit, description string, queries []Query) Panel {
	return Panel{Kind: Chart, Title: title, Unit: unit, Description: description, Queries: queries}
}

func number(title string, unit Unit, description string, queries []Query) Panel {
	return Panel{Kind: Number, Title: title, Unit: unit, Description: description, Queries: queries}
}

func table(title, description string, queries []Query) Panel {
	return Panel{Kind: Table, Title: title, Description: description, Queries: queries}
}

func (p Panel) wide(columns int) Panel {
	p.Width = columns
	return p
}

func (p Panel) named() Panel {
	p.Names = true
	return p
}

func (p Panel) stacked() Panel {
	p.Stack = true
	return p
}

func (p Panel) limits(warn, bad float64) Panel {
	p.Warn, p.Bad = warn, bad
	return p
}

func (p Panel) leadsTo(dashboard string, labels ...string) Panel {
	p.Leads, p.Labels = dashboard, labels
	return p
}

// Query is one query of a panel.
type Query struct {
	Expr   string
	Legend string // with {{label}}; a table has the labels as columns
	// Exemplars shows single tasks with their traces.
	Exemplars bool
}

// Kind is how a panel shows the results of its queries.
type Kind string

// The kinds of panels, as Grafana names them.
const (
	Chart  Kind = "timeseries"
	Number Kind = "stat"
	Table  Kind = "table"
)

// Unit is a unit, as Grafana names it.
type Unit string

// The units.
const (
	Count     Unit = "short"
	Seconds   Unit = "s"
	Bytes     Unit = "bytes"
	ByteRate  Unit = "Bps"
	Share     Unit = "percentunit"
	PerSecond Unit = "ops"
)

// The variables of the dashboards.
var (
	job       = Variable{"job", "label_values(quern_build_info, job)"}
	instances = Variable{"instance", `label_values(quern_build_info{job=~"$job"}, instance)`}
	tenants   = Variable{"tenant", `label_values(quern_tenant_up{job=~"$job"}, tenant)`}
	queues    = Variable{"queue", `label_values(quern_queue_depth{job=~"$job",tenant=~"$tenant"}, queue)`}
	plugins   = Variable{"plugin", `label_values(quern_plugin_loads_total{job=~"$job"}, plugin)`}
)
