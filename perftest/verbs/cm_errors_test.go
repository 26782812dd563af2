package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// TestCMErrors: each end of a connection says what its usual cause is.
func TestCMErrors(t *testing.T) {
	peer := netip.MustParseAddrPort("10.9.0.2:18515")
	for _, c := range []struct {
		event   CMEventType
		status  int
		refused bool
		want    string
	}{
		{CMRejected, 8, true, "rdma_cm to 10.9.0.2:18515: rejected (status 8): nobody listens there by rdma_cm"},
		{CMRejected, -int(syscall.ECONNREFUSED), true, "connection refused: nobody listens"},
		{CMUnreachable, 1, true, "nobody listens"},
		{CMRejected, 28, false, "does not take the connection"},
		{CMUnreachable, 2, false, "does not take the connection"},
		{CMUnreachable, 3, false, "the same -c"},
		{CMRejected, 10, false, "try again"},
		{CMUnreachable, -int(syscall.ETIMEDOUT), false, "connection timed out: the peer's host does not answer"},
		{CMAddrError, -int(syscall.ENODEV), false, "over no RDMA device"},
		{CMAddrError, -int(syscall.ETIMEDOUT), false, "ARP"},
		{CMRouteError, -int(syscall.ETIMEDOUT), false, "subnet manager"},
		{CMConnectError, -int(syscall.EINVAL), false, "-o"},
		{CMDisconnected, 0, false, "the peer ended the connection"},
		{CMDeviceRemoval, 0, false, "the device is gone"},
	} {
		e := &CMError{c.event, c.status, peer}
		if !strings.Contains(e.Error(), c.want) || e.Refused() != c.refused {
			t.Errorf("%v; want %q in it, refused %v", e, c.want, c.refused)
		}
		if c.status < 0 && !errors.Is(e, syscall.Errno(-c.status)) {
			t.Errorf("%v is not its errno", e)
		}
	}
	if s := CMEventType(99).String(); s == "" {
		t.Error("an event without a name")
	}
}

// TestNoCM: there is an answer wherever this is run.
func TestNoCM(t *testing.T) {
	if err := LoadCM(); err != nil && !errors.Is(err, ErrNoLibrary) {
		t.Error(err)
	}
}
