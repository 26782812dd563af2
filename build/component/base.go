package component

import (
	"github.com/assay-hpc/assay/harness/certificate"
)

// keepBase has the image keep what its base says of itself: NVIDIA's bases hold
// programs for desktops, whose libraries they lack, and the gate must tell those
// from what the build put in. Taken from the pinned base as they are, the records
// are out of reach of the image's steps.
func (b *builder) keepBase() {
	base := b.baseOf(b.Target, b.Platform)
	b.copy(base, "/var/lib/dpkg/status", certificate.BaseStatusPath)
	b.copy(base, "/etc/ld.so.cache", certificate.BaseCachePath)
}
