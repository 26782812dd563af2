// Package assay embeds what the assay binary needs: the matrix, its lock, and the source of the
// harness, which is compiled inside each build.
package assay

import "embed"

// Version is the version of both binaries.
const Version = "0.1.0"

// GoVersion is the toolchain that the harness is compiled with.
const GoVersion = "1.26.8"

// Matrix is the default matrix.yaml, Lock its matrix.lock.
//
//go:embed matrix.yaml
var Matrix []byte

//go:embed matrix.lock
var Lock []byte

// HarnessSource is the part of the module that ./cmd/harness needs, with the code for GPUs, the
// program that compiles its kernels, and libnccl.so.2.
//
//go:embed go.mod go.sum cmd/harness cmd/libnccl/*.go cmd/libnccl/build cmd/libnccl/engine.map cmd/libnccl/front internal/confine internal/exit internal/outfile internal/getopt/*.go internal/grammar internal/hostlist internal/infile internal/meet internal/attest/*.go internal/oci/*.go internal/pickle/*.go internal/words/*.go internal/gpu/rig/*.go
//go:embed harness/audit internal/certificate harness/certify internal/dpkg internal/elf harness/estimate harness/explain harness/fabric harness/fleet/*.go harness/gather internal/hardware/*.go internal/hardware/*.yaml internal/hardware/platforms harness/history harness/hunt harness/image harness/keep harness/judge/*.go harness/judge/reach.yaml internal/ldso internal/host/libnccl internal/host/machine internal/host/netenv internal/host/nvml/*.go harness/node internal/platform internal/result harness/registry harness/report internal/rootfs coll/predict/scale/*.go harness/sign harness/site internal/stat harness/suite harness/train harness/variables/*.go internal/host/sysfs internal/version
//go:embed coll/*.go coll/bootstrap coll/debug coll/elem/*.go coll/elem/*.s coll/flight coll/flip coll/hang/*.go coll/host coll/knob coll/op coll/perf/*.go coll/perf/world coll/schedule coll/session internal/host/topology coll/transport/*.go coll/transport/netplugin/*.go coll/transport/netplugin/*.c coll/transport/netplugin/*.h coll/transport/rendezvous coll/transport/shm coll/transport/slots coll/transport/socket coll/transport/verbs/*.go coll/predict/*.go coll/watch
//go:embed perftest/probe/*.go perftest/probe/*.c perftest/probe/*.h perftest/probe/wire/*.go internal/verbs/*.go internal/verbs/*.c internal/verbs/*.h
//go:embed coll/choose/*.go coll/choose/tables.json coll/executor coll/cuda/*.go coll/cuda/bench/*.go coll/cuda/bench/check.ptx coll/nccl/*.go coll/nccl/*.c coll/nccl/*.h
//go:embed internal/gpu/driver/*.go internal/gpu/driver/*.c internal/gpu/driver/*.h internal/gpu/driver/*.S internal/gpu/driver/lib internal/gpu/driver/include
//go:embed dcgm/diag/*.go dcgm/diag/ptx dcgm/hostengine/*.go
//go:embed perftest/gpumem perftest/membw/*.go perftest/membw/ptx perftest/judge/*.go perftest/mesh/*.go perftest/mesh/heatmap.html perftest/tcp/*.go
//go:embed dcgm/health/*.go dcgm/health/thresholds.yaml
//go:embed coll/cuda/kernels/*.go coll/cuda/kernels/*.cu coll/cuda/kernels/*.cuh coll/cuda/kernels/*.h coll/cuda/kernels/gen coll/cuda/kernels/ptx
var HarnessSource embed.FS

// HarnessModules lists the modules that ./cmd/harness is compiled from, one "path version" per
// line. It includes modules that Go only searches for packages because their paths share a
// prefix. CUDAModules is the same list with the code for GPUs. "go generate" writes both, and a
// test checks them.
//
//go:generate sh -c ".ci/modules urfave_cli_no_docs 0 > cmd/harness/modules.txt"
//go:generate sh -c ".ci/modules cuda,nvml,urfave_cli_no_docs 1 > cmd/harness/modules-cuda.txt"
//go:embed cmd/harness/modules.txt
var HarnessModules string

//go:embed cmd/harness/modules-cuda.txt
var CUDAModules string
