// Package dashboards has Quern's dashboards for Grafana: the fleet, one host, one tenant, one queue, one plugin.
//
// The JSON of the dashboards is in this folder, to be imported or provisioned; `go test ./metrics/dashboards -update`
// writes it anew. The code is its source: the code says which queries a panel has and in which unit, and
// [Dashboard.JSON] adds all else that Grafana needs. The program `quern` does not link this package.
//
// Each dashboard queries the families of the catalogue, so that it works without the recording rules. A panel that
// needs the rules says so. Of a gauge that every host shows with the same value, queries take max over the hosts, and
// only then sum.
package dashboards

// All lists the dashboards.
func All() []Dashboard {
	return []Dashboard{fleet(), host(), tenant(), queue(), plugin()}
}
