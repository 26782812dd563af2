package membw

import (
	"cmp"
	"context"
	"fmt"
	"io"
)

// Parameters of bandwidthTest, from NVIDIA's cuda-samples 12.8: 100 copies per size, no warm-up,
// decimal sizes.
const (
	testCopies    = 100
	testQuickSize = 32_000_000
)

// direction is a direction of bandwidthTest.
type direction uint8

// The directions, in measuring order.
const (
	htoD direction = iota
	dtoH
	dtoD
)

// TestOptions are the options of bandwidthTest.
type TestOptions struct {
	Mode                  string // quick, range or shmoo
	Start, End, Increment int    // bytes, in range mode
	Pageable              bool   // host memory is not page-locked
	WriteCombined         bool   // page-locked memory is write-combined
	HtoD, DtoH, DtoD      bool   // the directions; none: all
	Device                int
	All                   bool // all devices: their bandwidths are added
	CSV                   bool
	CPUTiming             bool
}

// memory is the kind of host memory.
func (o *TestOptions) memory() memory {
	switch {
	case o.Pageable:
		return pageable
	case o.WriteCombined:
		return combined
	}
	return pinned
}

// directions returns the directions to measure.
func (o *TestOptions) directions() []direction {
	var out []direction
	for d, want := range [...]bool{o.HtoD, o.DtoH, o.DtoD} {
		if want || !o.HtoD && !o.DtoH && !o.DtoD {
			out = append(out, direction(d))
		}
	}
	return out
}

// sizes returns the sizes of the mode.
func (o *TestOptions) sizes() (sizes []int) {
	switch o.Mode {
	case "range":
		for s := o.Start; s <= o.End; s += o.Increment {
			sizes = append(sizes, s)
		}
		return sizes
	case "shmoo":
		return shmooSizes()
	}
	return []int{testQuickSize}
}

// shmooSizes returns the 81 sizes of shmoo mode. The limit is checked before each step, so the last
// size exceeds it.
func shmooSizes() (sizes []int) {
	for s := 0; s <= 64_000_000; {
		switch {
		case s < 20_000:
			s += 1000
		case s < 50_000:
			s += 2000
		case s < 100_000:
			s += 10_000
		case s < 1_000_000:
			s += 100_000
		case s < 16_000_000:
			s += 1_000_000
		case s < 32_000_000:
			s += 2_000_000
		default:
			s += 4_000_000
		}
		sizes = append(sizes, s)
	}
	return sizes
}

// sampleNote ends the output of NVIDIA's samples.
const sampleNote = "\nNOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.\n"

// Run measures and prints like bandwidthTest. Its error is the reason for the printed "Result =
// FAIL".
func (o TestOptions) Run(ctx context.Context, m Machine, w io.Writer) error {
	fmt.Fprint(w, "[CUDA Bandwidth Test] - Starting...\n")
	devices := []int{o.Device}
	if o.All {
		devices = nil
		for _, g := range m.GPUs() {
			devices = append(devices, g.Index)
		}
		fmt.Fprint(w, "\n!!!!!Cumulative Bandwidth to be computed from all the devices !!!!!!\n\n")
	} else if o.Device < 0 || o.Device >= len(m.GPUs()) {
		fmt.Fprintf(w, "\n!!!!!Invalid GPU number %d given hence default gpu %d will be used !!!!!\n", o.Device, 0)
		devices = []int{0}
	}
	fmt.Fprint(w, "Running on...\n\n")
	for _, d := range devices {
		fmt.Fprintf(w, " Device %d: %s\n", d, m.GPUs()[d].Name)
	}
	fmt.Fprintf(w, " %s Mode\n\n", map[string]string{"quick": "Quick", "range": "Range", "shmoo": "Shmoo"}[o.Mode])
	err := o.measureAll(ctx, m, devices, w)
	result := "PASS"
	if err != nil {
		result = "FAIL"
	}
	_, bad := fmt.Fprintf(w, "Result = %s\n%s", result, sampleNote)
	return cmp.Or(err, bad)
}

func (o *TestOptions) measureAll(ctx context.Context, m Machine, devices []int, w io.Writer) error {
	sizes := o.sizes()
	for _, d := range o.directions() {
		bandwidths := make([]float64, len(sizes))
		for _, gpu := range devices {
			for i, size := range sizes {
				got, err := o.measure(ctx, m, d, gpu, size)
				if err != nil {
					return fmt.Errorf("GPU %d, %d bytes: %w", gpu, size, err)
				}
				bandwidths[i] += got
				if o.Mode == "shmoo" {
					fmt.Fprint(w, ".")
				}
			}
		}
		if o.Mode == "shmoo" {
			fmt.Fprintln(w)
		}
		if o.CSV {
			o.writeCSV(w, d, sizes, bandwidths, len(devices))
		} else {
			o.write(w, d, sizes, bandwidths, len(devices))
		}
	}
	return nil
}

// measure returns GB/s. Copies within a GPU count twice.
func (o *TestOptions) measure(ctx context.Context, m Machine, d direction, g, size int) (float64, error) {
	host := endpoint{g, o.memory()}
	flow, plan, times := Flow{From: host, To: gpu(g), By: g}, Plan{Bytes: size, Samples: 1, Copies: testCopies, Timing: byEvents}, 1.0
	switch {
	case d == dtoH:
		flow.From, flow.To = flow.To, flow.From
	case d == dtoD:
		flow.From, times = gpu(g), 2
	}
	switch {
	case o.Pageable && d != dtoD:
		plan.Timing, plan.Flush = eachCall, true
	case o.CPUTiming:
		plan.Timing = byStopwatch
	}
	out, err := m.Measure(ctx, []Flow{flow}, plan)
	if err != nil {
		return 0, err
	}
	return rates(times*float64(size*testCopies), out.Flows[0])[0], nil
}

func (o *TestOptions) write(w io.Writer, d direction, sizes []int, bandwidths []float64, devices int) {
	memory := "PINNED"
	if o.Pageable {
		memory = "PAGEABLE"
	}
	fmt.Fprintf(w, " %s Bandwidth, %d Device(s)\n %s Memory Transfers\n", [...]string{"Host to Device", "Device to Host", "Device to Device"}[d], devices, memory)
	if o.memory() == combined {
		fmt.Fprint(w, " Write-Combined Memory Writes are Enabled") // without a newline, as in bandwidthTest
	}
	fmt.Fprint(w, "   Transfer Size (Bytes)\tBandwidth(GB/s)\n")
	for i, size := range sizes {
		tabs := "\t\t\t"
		if size < 10000 {
			tabs += "\t"
		}
		fmt.Fprintf(w, "   %d%s%.1f\n", size, tabs, bandwidths[i])
	}
	fmt.Fprintln(w)
}

func (o *TestOptions) writeCSV(w io.Writer, d direction, sizes []int, bandwidths []float64, devices int) {
	name := [...]string{"H2D", "D2H", "D2D"}[d]
	if d != dtoD {
		name += map[memory]string{pinned: "-Pinned", combined: "-Pinned-WriteCombined", pageable: "-Paged"}[o.memory()]
	}
	for i, size := range sizes {
		fmt.Fprintf(w, "bandwidthTest-%s, Bandwidth = %.1f GB/s, Time = %.5f s, Size = %d bytes, NumDevsUsed = %d\n",
			name, bandwidths[i], float64(size)/(bandwidths[i]*1e9), size, devices)
	}
}
