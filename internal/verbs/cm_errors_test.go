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
		event   cmEventType
		status  int
		refused bool
		want    string
	}{
		{cmRejected, 8, true, "rdma_cm to 10.9.0.2:18515: rejected (status 8): nothing listens there by rdma_cm"},
		{cmRejected, -int(syscall.ECONNREFUSED), true, "connection refused: nothing listens"},
		{cmUnreachable, 1, true, "nothing listens"},
		{cmRejected, 28, false, "does not take the connection"},
		{cmUnreachable, 2, false, "does not take the connection"},
		{cmUnreachable, 3, false, "the same -c"},
		{cmRejected, 10, false, "try again"},
		{cmUnreachable, -int(syscall.ETIMEDOUT), false, "connection timed out: the peer's host does not answer"},
		{cmAddrError, -int(syscall.ENODEV), false, "over no RDMA device"},
		{cmAddrError, -int(syscall.ETIMEDOUT), false, "ARP"},
		{cmRouteError, -int(syscall.ETIMEDOUT), false, "subnet manager"},
		{cmConnectError, -int(syscall.EINVAL), false, "-o"},
		{cmDisconnected, 0, false, "the peer ended the connection"},
		{cmDeviceRemoval, 0, false, "the device is gone"},
	} {
		e := &CMError{c.event, c.status, peer}
		if !strings.Contains(e.Error(), c.want) || e.Refused() != c.refused {
			t.Errorf("%v; want %q in it, refused %v", e, c.want, c.refused)
		}
		if c.status < 0 && !errors.Is(e, syscall.Errno(-c.status)) {
			t.Errorf("%v is not its errno", e)
		}
	}
	if s := cmEventType(99).String(); s == "" {
		t.Error("an event without a name")
	}
}
