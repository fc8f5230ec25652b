// Package dashboards has Quern's dashboards for Grafana: the fleet, one host, one tenant, one queue, one plugin.
//
// Their JSON lies beside the code, to be imported or provisioned; `go test ./metrics/dashboards -update` writes it
// anew. The code is the source: it says what a panel asks and in which unit, and [Dashboard.JSON] adds all that Grafana
// wants beside that. The program `quern` does not link it.
//
// Each dashboard asks the families of the catalogue, so that it works without the recording rules; a panel that needs
// them says so. Gauges that every host shows alike are taken with max, and then summed.
package dashboards

// All lists the dashboards.
func All() []Dashboard {
	return []Dashboard{fleet(), host(), tenant(), queue(), plugin()}
}
