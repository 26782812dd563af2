//go:build !cgo || !linux

package probe

import "context"

// Run carries out this side of a test. Wrong options are a *FlagError, a machine that cannot run
// the test is a *NotAvailable; errors of the control channel are those of package wire.
func Run(_ context.Context, c Config, _ Events) (*Outcome, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	return nil, &NotAvailable{"this harness was built without cgo, which RDMA takes"}
}
