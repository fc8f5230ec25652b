package plugins

// BindingsOf tells what serves the queues of one tenant now, in no order. It costs nothing for the other tenants.
func (d *Directory) BindingsOf(tenant string) (bindings []Binding) {
	t := d.public.table.Load()
	own, served := t.own[tenant]
	if !served {
		return nil
	}
	for queue, v := range own {
		bindings = append(bindings, Binding{tenant, queue, v.Name})
	}
	for queue, v := range t.common {
		if own[queue] == nil {
			bindings = append(bindings, Binding{tenant, queue, v.Name})
		}
	}
	return bindings
}
