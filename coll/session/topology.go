package session

import (
	"bytes"
	"os"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/infile"
)

// DumpTopology writes the topology as NCCL does. It reads it from the file from, or from this
// machine if from is "".
func DumpTopology(from, to string) error {
	sys, err := readTopology(from)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := sys.WriteXML(&b); err != nil {
		return err
	}
	tmp := to + ".tmp"
	if err := os.WriteFile(tmp, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}

func readTopology(file string) (*topology.System, error) {
	if file == "" {
		fs, err := sysfs.Open("/")
		if err != nil {
			return nil, err
		}
		return topology.Read(topology.Sources{FS: fs})
	}
	f, err := infile.OpenArgument(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return topology.Load(f)
}
