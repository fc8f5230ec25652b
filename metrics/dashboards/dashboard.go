package dashboards

// Dashboard is one page of Grafana.
type Dashboard struct {
	Name        string // the name of its file; the UID is quern-NAME
	Title       string
	Description string
	Variables   []Variable // the variables of the dashboard, in addition to the data source
	Rows        []Row
}

// Variable is a label whose values the reader picks: any number of them. At first all are picked.
type Variable struct {
	Label string
	Query string // the query for the label's values, in Grafana's language: label_values(SELECTOR, LABEL)
}

// Row is a line of panels below a heading. It breaks where the panels are wider than Grafana's 24 columns.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a chart, a number or a table.
type Panel struct {
	Kind        Kind
	Title       string
	Description string // what the panel shows and when to worry
	Unit        Unit
	Width       int // in columns; 0 means 8 for a chart, 4 for a number and 24 for a table
	Stack       bool
	Names       bool // a panel with a number shows the name of its series instead
	// Values are yellow from Warn on, and red from Bad on. 0 means that there is no such color.
	Warn, Bad float64
	Queries   []Query
	// Leads is the name of the dashboard that a click on a series opens; "" for none. Labels are the labels of the series
	// that become the variables of that dashboard.
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
	Expr string
	// Legend is the name of a series, in which {{label}} stands for the label's value. A table has the labels as columns
	// instead.
	Legend string
	// Exemplars makes the panel show single tasks with their traces.
	Exemplars bool
}

// Kind says how a panel shows the results of its queries.
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
