package component

import (
	"fmt"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/certificate"
)

func init() { makers["gdrcopy"], makers["nvbandwidth"] = gdrcopy, nvbandwidth }

// gdrcopy is the userspace of GDRCopy. Its tests are compiled by nvcc, so it
// is built once per CUDA major version; the kernel module is the host's.
func gdrcopy(b *builder, version string) {
	src := b.download("https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v" + version + ".tar.gz")
	lib := "/usr/lib/" + b.Platform.Multiarch()
	built := b.compile("gdrcopy-"+version, b.oldestMajor(matrix.CompareVersions), src, fmt.Sprintf(
		"make -j\"$(nproc)\" CUDA=/run/assay/cuda prefix=/usr libdir=%s DESTDIR=/out lib_install exes_install\n", lib))
	b.copy(built, "/out/usr/", "/usr/")
	short := majorMinor(version) // the library's name has no patch level
	b.declare(certificate.Component{
		Name: "gdrcopy", Version: version, License: "MIT", Homepage: "https://github.com/NVIDIA/gdrcopy",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			{Name: "has the library of this version", Kind: certificate.CheckFile, Path: lib + "/libgdrapi.so." + short},
			load(lib + "/libgdrapi.so.2"),
			executable("/usr/bin/gdrcopy_copybw"), executable("/usr/bin/gdrcopy_sanity"),
		},
	})
}

// nvbandwidth measures copies between host and GPUs. One call of nvcc compiles it: its own build
// needs a newer CMake than the oldest Ubuntu has. Boost's archive is passed as a file because
// nvcc does not keep -Bstatic in front of the library that it applies to, and no image contains
// the shared library.
func nvbandwidth(b *builder, version string) {
	src := b.download("https://github.com/NVIDIA/nvbandwidth/archive/refs/tags/v" + version + ".tar.gz")
	built := b.compile("nvbandwidth-"+version, b.oldestUbuntu(), src, fmt.Sprintf(`mkdir -p /out/usr/bin
nvcc -std=c++17 -O3 %[1]s -I. -DGIT_VERSION='"v%[2]s"' -o /out/usr/bin/nvbandwidth $(ls *.cpp *.cu json/*.cpp 2>/dev/null) \
  /usr/lib/%[3]s/libboost_program_options.a -L/run/assay/cuda/lib64/stubs -lnvidia-ml -lcuda
`, gencode(b.Target), version, b.Platform.Multiarch()))
	b.copy(built, "/out/usr/", "/usr/")
	b.declare(certificate.Component{
		Name: "nvbandwidth", Version: version, License: "Apache-2.0", Homepage: "https://github.com/NVIDIA/nvbandwidth",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			executable("/usr/bin/nvbandwidth"),
			command("version", behind("v", version), "grep", "-a", "-o", "-m", "1", "v"+version, "/usr/bin/nvbandwidth"),
		},
	})
}
