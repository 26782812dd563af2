// Package nvml asks NVIDIA's management library about the health of GPUs. The
// library is looked up when it is first asked for, so that a program that
// imports the package starts on machines without a driver. The binding is
// go-nvml's, which needs cgo: the package has code only in builds with cgo and
// the tag nvml; without them its source says that it has no binding.
package nvml
