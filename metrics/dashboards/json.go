package dashboards

import (
	"encoding/json"
	"maps"
	"strings"
)

// schemaVersion is the version of Grafana 12's schema. Grafana from 9 on reads it; newer versions migrate it.
const schemaVersion = 41

// columns is the width of a page, in Grafana's columns.
const columns = 24

// object is a piece of Grafana's JSON.
type object map[string]any

// source is the data source that the reader picks.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// JSON returns the dashboard as Grafana imports it.
func (d Dashboard) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(object{
		"uid": "quern-" + d.Name, "title": "Quern / " + d.Title, "description": d.Description, "tags": []string{"quern"},
		"schemaVersion": schemaVersion, "version": 1, "editable": true, "graphTooltip": 1, "liveNow": false,
		"refresh": "30s", "timezone": "browser", "time": object{"from": "now-3h", "to": "now"}, "timepicker": object{},
		"fiscalYearStartMonth": 0,
		"annotations":          object{"list": []object{}},
		"links": []object{{
			"type": "dashboards", "tags": []string{"quern"}, "title": "Quern", "asDropdown": false, "includeVars": true,
			"keepTime": true, "targetBlank": false, "icon": "external link", "tooltip": "", "url": "",
		}},
		"templating": object{"list": d.variables()},
		"panels":     d.panels(),
	}, "", "  ")
	return append(text, '\n'), err
}

func (d Dashboard) variables() []object {
	list := []object{{
		"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "regex": "", "refresh": 1,
		"hide": 0, "multi": false, "includeAll": false, "current": object{"text": "", "value": ""}, "options": []object{},
		"skipUrlSync": false,
	}}
	for _, v := range d.Variables {
		list = append(list, object{
			"type": "query", "name": v.Label, "label": v.Label, "datasource": source, "definition": v.Query,
			"query": object{"query": v.Query, "refId": v.Label}, "regex": "", "refresh": 2, "sort": 1, "hide": 0,
			"multi": true, "includeAll": true, "allValue": ".+", // .+ leaves out the series with empty labels (see metrics)
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}}, "options": []object{}, "skipUrlSync": false,
		})
	}
	return list
}

// panels places the panels of all rows, from left to right and from top to bottom.
func (d Dashboard) panels() (list []object) {
	id, y := 0, 0
	for _, row := range d.Rows {
		id++
		list = append(list, object{
			"type": "row", "id": id, "title": row.Title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1},
		})
		y++
		x, tallest := 0, 0
		for _, p := range row.Panels {
			width, height := p.size()
			if x+width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			id++
			list = append(list, p.json(id, object{"x": x, "y": y, "w": width, "h": height}))
			x, tallest = x+width, max(tallest, height)
		}
		y += tallest
	}
	return list
}

func (p Panel) size() (width, height int) {
	width, height = p.Width, 8
	switch {
	case p.Kind == Number:
		width, height = max(width, 4), 4
	case width > 0:
	case p.Kind == Table:
		width = columns
	default:
		width = columns / 3
	}
	return width, height
}

func (p Panel) json(id int, at object) object {
	panel := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.Description, "datasource": source, "gridPos": at,
		"targets": p.targets(), "fieldConfig": object{"defaults": p.field(), "overrides": []object{}},
		"options": options[p.Kind],
	}
	if p.Names {
		named := maps.Clone(options[p.Kind])
		named["textMode"] = "name"
		panel["options"] = named
	}
	if p.Kind == Table {
		panel["transformations"] = []object{{
			"id":      "organize",
			"options": object{"excludeByName": object{"Time": true, "Value": true, "__name__": true}},
		}}
	}
	return panel
}

// options are Grafana's options for the panels of each kind.
var options = map[Kind]object{
	Chart: {
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	},
	Number: {
		"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "value",
		"graphMode": "area", "textMode": "auto", "justifyMode": "auto", "orientation": "auto", "wideLayout": true,
		"showPercentChange": false, "percentChangeColorMode": "standard",
	},
	Table: {"frameIndex": 0, "showHeader": true, "cellHeight": "sm"},
}

func (p Panel) targets() (list []object) {
	for i, q := range p.Queries {
		target := object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "expr": q.Expr, "legendFormat": q.Legend,
			"range": p.Kind != Table, "instant": p.Kind == Table, "exemplar": q.Exemplars,
		}
		if p.Kind == Table {
			target["format"] = "table"
		}
		if strings.Contains(q.Expr, "$__interval") {
			target["interval"] = "1m" // at least a minute between points: long enough for several scrapes
		}
		list = append(list, target)
	}
	return list
}

// field returns the field configuration of a panel: how its values look.
func (p Panel) field() object {
	steps := []object{{"color": "green", "value": nil}}
	if p.Warn > 0 {
		steps = append(steps, object{"color": "yellow", "value": p.Warn})
	}
	if p.Bad > 0 {
		steps = append(steps, object{"color": "red", "value": p.Bad})
	}
	field := object{
		"unit": p.Unit, "thresholds": object{"mode": "absolute", "steps": steps}, "color": object{"mode": "thresholds"},
		"mappings": []object{}, "links": p.links(),
	}
	if p.Kind == Chart {
		stacking, threshold := "none", "off"
		if p.Stack {
			stacking = "normal"
		}
		if len(steps) > 1 {
			threshold = "dashed"
		}
		field["color"] = object{"mode": "palette-classic"}
		field["custom"] = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false,
			"stacking": object{"mode": stacking, "group": "A"}, "thresholdsStyle": object{"mode": threshold},
		}
	}
	return field
}

// links returns the link from a series to the dashboard that Leads names, or none.
func (p Panel) links() []object {
	if p.Leads == "" {
		return []object{}
	}
	url := "/d/quern-" + p.Leads + "?${datasource:queryparam}&${job:queryparam}&${__url_time_range}"
	for _, label := range p.Labels {
		url += "&var-" + label + "=${__field.labels." + label + "}"
	}
	return []object{{"title": strings.ToUpper(p.Leads[:1]) + p.Leads[1:] + " ${__field.labels." +
		p.Labels[len(p.Labels)-1] + "}", "url": url, "targetBlank": false}}
}
