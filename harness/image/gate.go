package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
	"github.com/assay-hpc/assay/internal/version"
)

// Internal carries out the commands by which assay and harness start themselves in containers and
// as children, and reports whether it was one of them.
func Internal(ctx context.Context, args []string) (was bool, err error) {
	switch {
	case len(args) > 1 && args[1] == "confine":
		return true, confine.Main(args[2:], os.Stdin, os.Stdout)
	case len(args) == 2 && args[1] == "rank": // mpirun started it
		line, err := ownRank(os.Getenv)
		if err == nil {
			fmt.Println(line)
		}
		return true, err
	case len(args) == 2 && args[1] == "gate":
		return true, Gate(ctx, os.Stdin, os.Stdout, os.Stderr)
	}
	return false, nil
}

// DefaultPath is the PATH of a container that does not set it.
const DefaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Gate certifies the image below [certificate.GateRoot] without running anything of it: the other
// end of in and out starts the programs, in containers that have no way to this process.
func Gate(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	var req certificate.GateRequest
	remote, err := confine.Connect(in, out, &req)
	if err != nil {
		return err
	}
	res, err := gate(ctx, req, remote, progress)
	return remote.Finish(res, err)
}

func gate(ctx context.Context, req certificate.GateRequest, programs confine.Runner, progress io.Writer) (res certificate.GateResult, err error) {
	root, err := rootfs.Open(certificate.GateRoot)
	if err != nil {
		return res, err
	}
	cfg := Config{Unbelieved: req.Spec == nil, Runner: programs}
	if req.Records {
		cfg.Records = certificate.GateRecords
	}
	if req.Spec != nil {
		spec, err := certificate.ParseSpec(req.Spec)
		if err != nil {
			return res, err
		}
		if cfg.Spec, err = gateSpec(spec, cfg.Records); err != nil {
			cfg.Spec, cfg.SpecErr = spec, err
		}
	}
	env := &suite.Env{Root: root, Platform: req.Platform, Environ: append([]string{DefaultPath}, req.Env...)}
	began := time.Now()
	results, err := suite.Run(ctx, env, checks(cfg, env), suite.Options{Parallel: runtime.NumCPU(), Observe: func(e suite.Event) {
		if e.Result != nil {
			fmt.Fprintf(progress, "%s %s %s\n", e.Result.Verdict, e.Result.ID, e.Result.Reason)
		}
	}})
	if err != nil {
		return res, err
	}
	v := version.Get()
	st := certificate.New(certificate.Predicate{
		Suite: Name, Started: began, Finished: began.Add(time.Since(began)), Results: results,
		Harness:     certificate.Harness{Version: v.Version, Commit: v.Commit, Origin: certificate.OriginAssay},
		Environment: Describe(root, cfg.Spec),
	})
	st.Predicate.Environment.Platform = req.Platform
	for _, subject := range req.Subjects {
		name, digest, _ := strings.Cut(subject, "@")
		if err := st.AddSubject(name, digest); err != nil {
			return res, err
		}
	}
	if res.Certificate, err = st.Marshal(); err != nil {
		return res, err
	}
	inv, err := Inventory(root)
	if err != nil && st.Predicate.Verdict != result.Pass { // the database is what failed
		inv, err = certificate.NewInventory(), nil
	}
	if err != nil {
		return res, err
	}
	if cfg.Spec != nil {
		inv.Components = ofBase(cfg.Spec)
	}
	res.Inventory, err = inv.Marshal()
	return res, err
}

// gateSpec adds to a declaration that of a base of assay's, from the base's own records.
func gateSpec(spec *certificate.ImageSpec, records string) (*certificate.ImageSpec, error) {
	if records == "" {
		return spec, nil
	}
	root, err := rootfs.Open(records)
	if err != nil {
		return nil, err
	}
	return withBase(spec, root, "/"+path.Base(certificate.BaseSpecPath))
}

// ofBase returns the components that an image of assay's, as the base, declares.
func ofBase(spec *certificate.ImageSpec) []certificate.Component {
	from := spec.AssayBase()
	if from == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(spec.Components), func(c certificate.Component) bool { return c.Base != from })
}
