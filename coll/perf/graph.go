package perf

import "time"

// capture records iterations of an operation as a graph.
func (w *worker) capture(o *operation, iters, agg int) (Graph, error) {
	launch := w.iteration(o, agg, true)
	g, err := o.lane.Capture(func() error {
		for range iters {
			if err := launch(); err != nil {
				return err
			}
		}
		o.note()
		return nil
	})
	if err != nil {
		return nil, w.failedBy(o.comm, err)
	}
	// While it creates a graph, the driver may wait for the device, and the device for a rank
	// that has not created its graph yet.
	return g, w.barrier()
}

// launches runs a graph the given number of times, and waits for the last one.
func (w *worker) launches(o *operation, g Graph, times int) (measure, error) {
	return w.measured(o, times, func() error {
		if err := g.Launch(); err != nil {
			return w.failedBy(o.comm, err)
		}
		return w.complete(o)
	})
}

// timedGraph records the iterations as a graph, and launches it as often as -G says. The first
// launch, in which the driver puts the graph onto the device, is not timed. Times are those of
// one launch.
func (w *worker) timedGraph(o *operation, iters, agg int) (m measure, err error) {
	err = w.launched(o, iters, agg, func(g Graph) error {
		if err := w.barrier(); err != nil {
			return err
		}
		m, err = w.launches(o, g, o.graph)
		return err
	})
	m.elapsed /= time.Duration(o.graph)
	m.issued /= time.Duration(o.graph)
	return m, err
}

// launched records a graph, launches it once, and keeps it while f runs.
func (w *worker) launched(o *operation, iters, agg int, f func(Graph) error) error {
	g, err := w.capture(o, iters, agg)
	if err != nil {
		return err
	}
	if _, err = w.launches(o, g, 1); err == nil {
		err = f(g)
	}
	return w.closeGraph(o, g, err)
}

// closeGraph frees a graph; err is what went wrong before.
func (w *worker) closeGraph(o *operation, g Graph, err error) error {
	closed := g.Close()
	if err == nil && closed != nil {
		return w.failedBy(o.comm, closed)
	}
	return err
}

// launchOnce runs the operation once, in the same way as it is measured.
func (o *operation) launchOnce() error {
	if o.graph == 0 {
		return o.once()
	}
	return o.w.launched(o, 1, 1, func(Graph) error { return nil })
}
