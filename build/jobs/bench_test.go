package jobs

import (
	"testing"

	"github.com/assay-hpc/assay/internal/hardware"
)

func BenchmarkRender(b *testing.B) {
	for _, s := range []string{SlurmEnroot, MPIOperator} {
		b.Run(s, func(b *testing.B) {
			for b.Loop() {
				if _, err := Render(Options{Profile: "gb300-nvl72", Scheduler: s, Image: "r.example/assay:1", NoExec: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := parseProfiles(hardware.Files); err != nil {
			b.Fatal(err)
		}
	}
}
