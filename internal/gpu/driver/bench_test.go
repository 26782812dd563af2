//go:build cuda && cgo

package driver

import "testing"

// BenchmarkLaunch is what a launch of an empty kernel costs the processor, where
// the queue of launches is not full.
func BenchmarkLaunch(b *testing.B) {
	gpus(b, 1)
	s := stream(b)
	m, err := Load(kernels)
	check(b, err)
	f, err := m.Function("empty")
	check(b, err)
	l := NewLaunch(f)
	defer l.Close()
	l.SetStream(s)
	inBursts(b, s, l.Run)
	check(b, m.Unload())
}

// BenchmarkRunAll is the same for one launch on each GPU, all in one call.
func BenchmarkRunAll(b *testing.B) {
	gpus(b, 1)
	all, err := Devices()
	check(b, err)
	ctx := gpus(b, len(all))
	ls := make([]*Launch, len(ctx))
	for i, c := range ctx {
		check(b, c.Bind())
		m, err := Load(kernels)
		check(b, err)
		f, err := m.Function("empty")
		check(b, err)
		s, err := NewStream(0)
		check(b, err)
		ls[i] = NewLaunch(f)
		ls[i].SetStream(s)
		defer func() {
			ls[i].Close()
			check(b, c.Bind(), c.Synchronize(), s.Destroy(), m.Unload())
		}()
	}
	check(b, ctx[0].Bind())
	inBursts(b, 0, func() error { return RunAll(ls) })
}

// BenchmarkGraphLaunch is the same for a graph of one empty kernel.
func BenchmarkGraphLaunch(b *testing.B) {
	gpus(b, 1)
	s := stream(b)
	m, err := Load(kernels)
	check(b, err)
	f, err := m.Function("empty")
	check(b, err)
	l := NewLaunch(f)
	defer l.Close()
	l.SetStream(s)
	check(b, s.BeginCapture(), l.Run())
	g, err := s.EndCapture()
	check(b, err)
	x, err := g.Instantiate()
	check(b, err)
	inBursts(b, s, func() error { return x.Launch(s) })
	check(b, x.Destroy(), g.Destroy(), m.Unload())
}

// BenchmarkLaunchSync is a launch and the wait for its end.
func BenchmarkLaunchSync(b *testing.B) {
	gpus(b, 1)
	s := stream(b)
	m, err := Load(kernels)
	check(b, err)
	f, err := m.Function("empty")
	check(b, err)
	l := NewLaunch(f)
	defer l.Close()
	l.SetStream(s)
	b.ReportAllocs()
	for b.Loop() {
		check(b, l.Run(), s.Synchronize())
	}
	check(b, m.Unload())
}

// inBursts measures f, and not the wait for what it has enqueued, which would
// fill the queue and stop it.
func inBursts(b *testing.B, s Stream, f func() error) {
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := f(); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			b.StopTimer()
			check(b, s.Synchronize())
			b.StartTimer()
		}
	}
	b.StopTimer()
	check(b, s.Synchronize())
}
