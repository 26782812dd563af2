package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/internal/version"
)

func versionCommand(out io.Writer) *cli.Command {
	var format string
	return &cli.Command{
		Name: "version", Usage: "say which build this is",
		Flags:  []cli.Flag{grammar.Format(&format, "text", "json")},
		Before: grammar.NoArgs,
		Action: func(*cli.Context) error {
			v := version.Get()
			if format == "json" {
				return json.NewEncoder(out).Encode(struct {
					version.Info
					GPUs    string `json:"gpus,omitempty"`
					Kernels string `json:"kernels,omitempty"`
					RDMA    string `json:"rdma"`
				}{v, world.AboutGPUs(), world.AboutKernels(), verbs.About()})
			}
			_, err := fmt.Fprintf(out, "harness %v %s %s/%s\n", v, v.Go, v.OS, v.Arch)
			for _, part := range [][2]string{{"GPUs", world.AboutGPUs()}, {"Kernels", world.AboutKernels()}, {"RDMA", verbs.About()}} {
				if err == nil && part[1] != "" {
					_, err = fmt.Fprintf(out, "%s: %s\n", part[0], part[1])
				}
			}
			return err
		},
	}
}
