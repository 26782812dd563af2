package component

import (
	"github.com/assay-hpc/assay/internal/certificate"
)

// keepBase stores the base's own records in the image. NVIDIA's bases contain desktop programs
// without the libraries that these need, and the gate must distinguish those programs from what
// the build installed. The records are copied from the pinned base, so the image's steps cannot
// change them.
func (b *builder) keepBase() {
	base := b.baseOf(b.Target, b.Platform)
	b.copy(base, "/var/lib/dpkg/status", certificate.BaseStatusPath)
	b.copy(base, "/etc/ld.so.cache", certificate.BaseCachePath)
}
