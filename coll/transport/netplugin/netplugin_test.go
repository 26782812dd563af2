//go:build cgo

package netplugin_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

var testKey = []byte("the key of the tests, 32 bytes..")

// opener opens ranks on a plugin's network, with options that begin as opt.
func opener(file string, opt netplugin.Options) transporttest.Opener {
	return transporttest.Each(func(t testing.TB, r int) transporttest.Rank { return openRank(t, file, r, opt) })
}

func openRank(t testing.TB, file string, r int, opt netplugin.Options) transporttest.Rank {
	t.Helper()
	l, err := netplugin.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if opt.Net, err = l.Init(uint64(r)); err != nil {
		t.Fatal(err)
	}
	opt.Rank, opt.Key, opt.Comm, opt.Fault, opt.First = r, testKey, []byte("test"), new(transport.Fault), r
	if opt.Logf == nil {
		opt.Logf = t.Logf
	}
	e, err := netplugin.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return transporttest.Rank{Endpoint: e, Fault: opt.Fault}
}

// slotted are options with messages of so many bytes.
func slotted(maxMessage int) netplugin.Options {
	return netplugin.Options{Options: slots.Options{MaxMessage: maxMessage}}
}

// TestConformance runs the transports' suite over the test plugin in all its
// moods. It aborts when a connection is closed with requests under way.
func TestConformance(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	file := netplugintest.Build(t)
	for _, tt := range []struct {
		name string
		env  map[string]string
		opt  netplugin.Options
		long bool
	}{
		{name: "plain"},
		{name: "slow to connect", env: map[string]string{"ASSAY_TEST_NET_CONNECT": "7"}, long: true},
		{name: "busy", env: map[string]string{"ASSAY_TEST_NET_BUSY": "2"}, long: true},
		{name: "all", env: map[string]string{"ASSAY_TEST_NET_CONNECT": "3", "ASSAY_TEST_NET_BUSY": "1", "ASSAY_TEST_NET_PARTIAL": "3000"}, opt: slotted(20_000)},
		{name: "small messages", opt: slotted(1000), long: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && testing.Short() {
				t.Skip("long")
			}
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			transporttest.Run(t, opener(file, tt.opt))
		})
	}
}

// TestVersions moves messages over each version of the interface.
func TestVersions(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	for _, v := range []int{8, 9, 10, 11, 12} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			file := netplugintest.Build(t, fmt.Sprintf("-DONLY=%d", v))
			l, err := netplugin.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if l.Version() != v || l.Name() != netplugintest.Name || l.File() != file {
				t.Errorf("the library is %s, version %d, of %s", l.Name(), l.Version(), l.File())
			}
			ranks := opener(file, netplugin.Options{})(t, 2)
			tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
			transporttest.Say(t, ranks, tx, rx, strings.Repeat("large", 80_000))
			transporttest.Say(t, ranks, tx, rx, "")
		})
	}
	l, err := netplugin.Load(netplugintest.Build(t))
	if err != nil || l.Version() != 12 {
		t.Errorf("of versions 8 and 12, %d is used: %v", l.Version(), err)
	}
}

// TestPluginFails: what a plugin's call returns breaks the connection, and is
// said.
func TestPluginFails(t *testing.T) {
	file := netplugintest.Build(t)
	t.Setenv("ASSAY_TEST_NET_FAIL", "40")
	ranks := opener(file, netplugin.Options{})(t, 2)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	err := transporttest.Poll(ranks, func() bool {
		tx.Post([]byte("hello"), transport.Header{})
		if _, _, ok := rx.Peek(); ok {
			rx.Release()
		}
		return false
	})
	if err == nil || !strings.Contains(err.Error(), "network plugin assay test: test: system error (2)") {
		t.Errorf("the fault is %v", err)
	}
}

// TestVanished: the end of the TCP connection breaks a connection whose plugin
// notices nothing.
func TestVanished(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_DEAF", "1")
	ranks := opener(netplugintest.Build(t), netplugin.Options{})(t, 2)
	tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
	transporttest.Say(t, ranks, tx, rx, "hello")
	netplugin.HangUp(ranks[0].Endpoint)
	for r, want := range []string{"rank 1 is lost", "rank 0 is lost: it closed the connection without a goodbye (noticed by rank 1)"} {
		err := transporttest.Poll(ranks[r:r+1], func() bool { return false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: the fault is %v; want %q", r, err, want)
		}
	}
}

// TestListenFails: both sides say why there is no connection.
func TestListenFails(t *testing.T) {
	file := netplugintest.Build(t)
	ranks := opener(file, netplugin.Options{})(t, 2)
	t.Setenv("ASSAY_TEST_NET_LISTEN", "2")
	_, err := ranks[0].Tx(t.Context(), 1, ranks[1].Info(), 0)
	if err == nil || !strings.Contains(err.Error(), "the receiver: network plugin assay test: listen: system error (2)") {
		t.Errorf("Tx: %v", err)
	}
	err = transporttest.Poll(ranks[1:], func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "receiving from rank 0: network plugin assay test: listen: system error (2)") {
		t.Errorf("the receiver's fault is %v", err)
	}
}

// TestLoad: why there is no plugin is said for each file that was tried.
func TestLoad(t *testing.T) {
	other := t.TempDir() + "/libnccl-net-empty.so"
	if err := os.WriteFile(other, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for entry, want := range map[string][]string{
		"":          {"no network plugin: libnccl-net.so: cannot open shared object file"},
		"absent":    {"absent: cannot open", "libnccl-net-absent.so: cannot open"},
		other:       {"libnccl-net-empty.so: file too short"},
		"libm.so.6": {"libm.so.6 has none of the symbols ncclNetPlugin_v8 to ncclNetPlugin_v12"},
	} {
		l, err := netplugin.Load(entry)
		if err == nil && entry == "" {
			t.Logf("this machine has %s", l.File())
			continue
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("Load(%q) = %v; want %q in it", entry, err, w)
			}
		}
	}
}

// TestInit: a plugin that does not start, and one without devices.
func TestInit(t *testing.T) {
	for name, tt := range map[string]struct{ variable, value, want string }{
		"init fails": {"ASSAY_TEST_NET_INIT", "2", "network plugin assay test: init: system error (2)"},
		"no devices": {"ASSAY_TEST_NET_DEVICES", "0", "network plugin assay test has no devices"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := netplugin.Load(netplugintest.Build(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(tt.variable, tt.value)
			if _, err := l.Init(1); err == nil || err.Error() != tt.want {
				t.Errorf("Init: %v; want %s", err, tt.want)
			}
		})
	}
}

// TestLog: the plugin's lines arrive, those that are wanted.
func TestLog(t *testing.T) {
	var mu sync.Mutex
	var lines []netplugin.Line
	keep := func(l netplugin.Line) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, l)
	}
	defer netplugin.Log(0, nil)
	l, err := netplugin.Load(netplugintest.Build(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASSAY_TEST_NET_INIT", "3")
	for level, want := range map[netplugin.Level]string{
		netplugin.Info: "[{3 16 NET/Test : init returns 3} {2 16 NET/Test : told to fail}]",
		netplugin.Warn: "[{2 16 NET/Test : told to fail}]",
	} {
		lines = nil
		netplugin.Log(level, keep)
		_, _ = l.Init(1)
		mu.Lock()
		if got := fmt.Sprint(lines); got != want {
			t.Errorf("the log is %s; want %s", got, want)
		}
		mu.Unlock()
	}
}

// TestReach: a rank with another plugin is named.
func TestReach(t *testing.T) {
	a := openRank(t, netplugintest.Build(t), 0, netplugin.Options{})
	b := openRank(t, netplugintest.Build(t, `-DNAME="other"`), 1, netplugin.Options{})
	if err := a.Reach(1, b.Info()); err == nil || err.Error() != "rank 1 has the network other, this rank assay test" {
		t.Errorf("Reach: %v", err)
	}
}
