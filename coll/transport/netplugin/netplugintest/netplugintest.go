//go:build cgo

package netplugintest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport/netplugin"
)

// patience is how long the suite waits for an event that must happen.
const patience = 5 * time.Minute

// Run runs the suite on the plugin that an entry of NCCL_NET_PLUGIN names, over each of
// its devices, within this process.
func Run(t *testing.T, entry string) {
	l, err := netplugin.Load(entry)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, version %d, from %s", l.Name(), l.Version(), l.File())
	n := start(t, l, 1)
	t.Run("properties", func(t *testing.T) { testProperties(t, n) })
	t.Run("initialized again", func(t *testing.T) { testAgain(t, l, n) })
	for d, p := range n.Devices() {
		t.Run(fmt.Sprintf("device %d (%s)", d, p.Name), func(t *testing.T) {
			for _, tt := range []struct {
				name string
				run  func(*testing.T, *netplugin.Net, int)
			}{
				{"listen and close", testListen},
				{"patience", testPatience},
				{"sizes", testSizes},
				{"receive larger than send", testLarger},
				{"requests", testRequests},
				{"order", testOrder},
				{"regions", testRegions},
				{"connections", testConnections},
				{"close", testClose},
			} {
				t.Run(tt.name, func(t *testing.T) { tt.run(t, n, d) })
			}
		})
	}
}

// soon runs a call that must not block, and fails the test if it does.
func soon(t testing.TB, name string, call func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		check(t, err)
	case <-time.After(5 * time.Second):
		broken(t, name, "it does not block; it has not returned for 5 s")
		t.FailNow()
	}
}

// start initializes the plugin, and closes it at the end of the test.
func start(t *testing.T, l *netplugin.Library, id uint64) *netplugin.Net {
	t.Helper()
	n, err := l.Init(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, n.Close()) })
	return n
}

// check fails the test if a call returned an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// broken reports a call that broke a rule of the interface.
func broken(t testing.TB, call, rule string, args ...any) {
	t.Helper()
	t.Errorf("%s broke a rule: %s", call, fmt.Sprintf(rule, args...))
}

func testProperties(t *testing.T, n *netplugin.Net) {
	for d, p := range n.Devices() {
		t.Logf("device %d: %+v", d, p)
		for rule, ok := range map[string]bool{
			"a device has a name":                                            p.Name != "",
			"PtrSupport has no bits but 1, 2 and 4":                          p.PtrSupport&^7 == 0,
			"the processor's memory is supported (PtrSupport & 1)":           p.PtrSupport&netplugin.PtrHost != 0,
			"the speed is positive, in Mbit/s, below 100 Tbit/s":             p.Speed > 0 && p.Speed < 100e6,
			"there can be 2 connections at least (maxComms)":                 p.MaxComms >= 2,
			"1 to 8 receives can be grouped (maxRecvs)":                      p.MaxRecvs >= 1 && p.MaxRecvs <= 8,
			"the latency is not negative, and less than a second":            p.Latency >= 0 && p.Latency < 1e6,
			"messages can be of 4 MiB at least, 1 TiB at most (maxP2pBytes)": p.MaxBytes >= 4<<20 && p.MaxBytes <= 1<<40,
			"a device has 1 to 8 parts (vProps.ndevs)":                       p.Parts >= 1 && p.Parts <= 8,
		} {
			if !ok {
				broken(t, fmt.Sprintf("getProperties(%d)", d), "%s; it is %+v", rule, p)
			}
		}
	}
}

// testAgain: a second communicator has the same devices.
func testAgain(t *testing.T, l *netplugin.Library, n *netplugin.Net) {
	m := start(t, l, 2)
	if len(m.Devices()) != len(n.Devices()) {
		broken(t, "devices", "it does not change; it was %d and is %d", len(n.Devices()), len(m.Devices()))
	}
}

// testListen: a listener to which no sender connects accepts none, and closes.
func testListen(t *testing.T, n *netplugin.Net, device int) {
	a, err := n.Listen(device)
	check(t, err)
	b, err := n.Listen(device)
	check(t, err)
	if a.Handle == b.Handle {
		broken(t, "listen", "two listeners have different handles")
	}
	soon(t, "accept", func() error {
		c, err := a.Accept()
		if c != nil {
			broken(t, "accept", "while no sender connects it returns a NULL comm")
		}
		return err
	})
	check(t, a.Close())
	check(t, b.Close())
}

// A pair is both ends of a connection, with the memory of each.
type pair struct {
	t         testing.TB
	l         *netplugin.Listener
	send      *netplugin.Comm
	recv      *netplugin.Comm
	out, in   []byte
	ro, ri    netplugin.Region
	pin       runtime.Pinner
	connected time.Duration // the longest that one call took
}

// begin listens and connects, without memory.
func begin(t testing.TB, n *netplugin.Net, device int) *pair {
	t.Helper()
	p := &pair{t: t}
	l, err := n.Listen(device)
	check(t, err)
	p.l = l
	d := n.Dial(device, l.Handle)
	defer d.Close()
	p.until("connect and accept", func() bool {
		if p.send == nil {
			start := time.Now()
			p.send, err = d.Connect()
			p.connected = max(p.connected, time.Since(start))
			check(t, err)
		}
		if p.recv == nil {
			start := time.Now()
			p.recv, err = l.Accept()
			p.connected = max(p.connected, time.Since(start))
			check(t, err)
		}
		return p.send != nil && p.recv != nil
	})
	return p
}

// connect is begin, with the given number of bytes of memory at each end.
func connect(t testing.TB, n *netplugin.Net, device, bytes int) *pair {
	t.Helper()
	p := begin(t, n, device)
	p.out, p.in = make([]byte, bytes), make([]byte, bytes)
	p.pin.Pin(&p.out[0])
	p.pin.Pin(&p.in[0])
	var err error
	p.ro, err = p.send.Register(p.out)
	check(t, err)
	p.ri, err = p.recv.Register(p.in)
	check(t, err)
	return p
}

// end closes the connection.
func (p *pair) end() {
	p.t.Helper()
	if p.out != nil {
		check(p.t, p.send.Deregister(p.ro))
		check(p.t, p.recv.Deregister(p.ri))
	}
	check(p.t, p.send.Close())
	check(p.t, p.recv.Close())
	check(p.t, p.l.Close())
	p.pin.Unpin()
}

// until calls f until it reports true.
func (p *pair) until(what string, f func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for i := 0; !f(); i++ {
		if i%64 == 63 {
			time.Sleep(10 * time.Microsecond)
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: nothing happens for %v", what, patience)
		}
	}
}

// A call is a send or a receive, with its request.
type call struct {
	name string
	c    *netplugin.Comm
	b    []byte
	tag  int
	r    netplugin.Region
	q    netplugin.Request
	ok   bool // accepted by the plugin
	done bool
	n    int // length, when done
}

func (p *pair) sending(b []byte, tag int) *call {
	return &call{name: "isend", c: p.send, b: b, tag: tag, r: p.ro}
}

func (p *pair) receiving(b []byte, tag int) *call {
	return &call{name: "irecv", c: p.recv, b: b, tag: tag, r: p.ri}
}

// begin submits the call, if the plugin has not accepted it yet, and reports whether it
// has.
func (k *call) begin(t testing.TB) bool {
	t.Helper()
	if !k.ok {
		do := k.c.Receive
		if k.name == "isend" {
			do = k.c.Send
		}
		var err error
		k.q, k.ok, err = do(k.b, k.tag, k.r)
		check(t, err)
	}
	return k.ok
}

// try makes progress on a call, and reports whether it is done.
func (k *call) try(t testing.TB) bool {
	t.Helper()
	if k.begin(t) && !k.done {
		var err error
		k.done, k.n, err = k.c.Test(k.q)
		check(t, err)
	}
	return k.done
}

// all makes progress on calls until all are done. The calls of one end begin in order.
func (p *pair) all(calls ...*call) {
	p.t.Helper()
	p.until(fmt.Sprintf("%d requests", len(calls)), func() bool {
		done := true
		waits := map[string]bool{} // ends with a call that was not accepted
		for _, k := range calls {
			if !k.ok && waits[k.name] {
				done = false
				continue
			}
			done = k.try(p.t) && done
			waits[k.name] = waits[k.name] || !k.ok
		}
		return done
	})
}

// fill writes a pattern.
func fill(b []byte, seed int) {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = rng.Read(b)
}

// arrived compares a received message with the message that was sent.
func arrived(t testing.TB, k *call, want []byte) {
	t.Helper()
	if k.n != len(want) {
		broken(t, "test", "it says of a receive how many bytes came: %d were sent, it says %d", len(want), k.n)
	}
	if !bytes.Equal(k.b[:len(want)], want) {
		broken(t, "irecv", "what is received is what was sent: a message of %d bytes differs", len(want))
	}
}
