package plugins

// BindingsOf tells what serves the queues of one tenant now, in no order. It costs nothing for the other tenants.
func (d *Directory) BindingsOf(tenant string) (bindings []Binding) {
	serving := d.serving.Load()
	own, served := serving.own[tenant]
	if !served {
		return nil
	}
	for queue, v := range own {
		bindings = append(bindings, Binding{tenant, queue, v.Name})
	}
	for queue, v := range serving.common {
		if own[queue] == nil {
			bindings = append(bindings, Binding{tenant, queue, v.Name})
		}
	}
	return bindings
}
