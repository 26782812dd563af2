package component

import (
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
)

func init() { makers["cudnn"], makers["dcgm"] = cudnn, dcgm }

// cudnn comes from the CUDA repository that the base is set up for.
func cudnn(b *builder, version string) {
	major := b.Target.CUDAMajor()
	for _, p := range []string{"libcudnn9-cuda-", "libcudnn9-dev-cuda-", "libcudnn9-headers-cuda-"} {
		b.install(p + major + "=" + version)
	}
	b.label("com.nvidia.cudnn.version", version)
	b.setenv("NV_CUDNN_VERSION", version)
	b.setenv("NV_CUDNN_PACKAGE_NAME", "libcudnn9-cuda-"+major)
	b.setenv("NV_CUDNN_PACKAGE", "libcudnn9-cuda-"+major+"="+version)
	b.setenv("NV_CUDNN_PACKAGE_DEV", "libcudnn9-dev-cuda-"+major+"="+version)
	b.declare(certificate.Component{
		Name: "cudnn", Version: version, License: "LicenseRef-NVIDIA-cuDNN-SLA", Homepage: "https://developer.nvidia.com/cudnn",
		Checks: []certificate.Check{
			command("version", exact(version), "dpkg-query", "-W", "-f", "${Version}", "libcudnn9-cuda-"+major),
			load("/usr/lib/" + b.Platform.Multiarch() + "/libcudnn.so.9"),
		},
	})
}

// dcgm comes from the CUDA repository. Version 4 is split by CUDA's major
// version, which must be the driver's.
func dcgm(b *builder, version string) {
	major := b.Target.CUDAMajor()
	packages := []string{"datacenter-gpu-manager"}
	if !strings.HasPrefix(upstream(version), "3.") {
		v4 := "datacenter-gpu-manager-4-"
		packages = []string{v4 + "core", v4 + "cuda" + major, v4 + "proprietary", v4 + "proprietary-cuda" + major}
	} else if !strings.Contains(version, ":") {
		version = "1:" + version // NVIDIA's packages carry an epoch
	}
	for _, p := range packages {
		b.install(p + "=" + version)
	}
	b.declare(certificate.Component{
		Name: "dcgm", Version: version, License: "Apache-2.0 AND LicenseRef-NVIDIA-DCGM-EULA", Homepage: "https://developer.nvidia.com/dcgm",
		Checks: []certificate.Check{
			command("version", exact(upstream(version)), "dcgmi", "--version"),
			executable("/usr/bin/nv-hostengine"),
		},
	})
}
