//go:build cgo

package session

import (
	"context"
	"errors"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// TestCollNetOpenEnds: a head that waits for another one, whose communicator breaks or whose caller
// gives up, says why.
func TestCollNetOpenEnds(t *testing.T) {
	lib, err := netplugin.Load(netplugintest.Build(t))
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("rank 1 is lost")
	for name, end := range map[string]func(caller, broken context.CancelCauseFunc){
		"broken": func(_, broken context.CancelCauseFunc) { broken(why) },
		"caller": func(caller, _ context.CancelCauseFunc) { caller(why) },
	} {
		t.Run(name, func(t *testing.T) {
			var handles [][netplugin.HandleSize]byte
			var listeners []*netplugin.CollListener
			for range 2 { // of which one never comes
				net, err := lib.CollNet(1)
				if err != nil {
					t.Fatal(err)
				}
				l, err := net.Listen(0)
				if err != nil {
					t.Fatal(err)
				}
				listeners, handles = append(listeners, l), append(handles, l.Handle)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			broken, breaks := context.WithCancelCause(t.Context())
			defer cancel(nil)
			defer breaks(nil)
			end(cancel, breaks)
			err := new(collNet).open(ctx, &Session{cfg: Config{Broken: broken, Fault: new(transport.Fault)}}, listeners[0], handles, 0)
			if !errors.Is(err, why) {
				t.Errorf("open: %v; want that %v", err, why)
			}
		})
	}
}
