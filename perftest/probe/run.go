package probe

import (
	"context"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// Run carries out this side of a test. Wrong options are a *FlagError, a
// machine that cannot a *NotAvailable; errors of the control channel are
// package wire's.
func Run(_ context.Context, c Config, _ Events) (*Outcome, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	root, err := sysfs.Open("/")
	if err != nil {
		return nil, &NotAvailable{err.Error()}
	}
	if err := c.Available(root); err != nil {
		return nil, err
	}
	return nil, &NotAvailable{"this harness was built without cgo, which RDMA takes"}
}
