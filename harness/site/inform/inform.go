// Package inform tells the systems that give a node its work what a certificate means for it.
package inform

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/harness/site/kubernetes"
	"github.com/assay-hpc/assay/harness/site/slurm"
	"github.com/assay-hpc/assay/internal/certificate"
)

// Options say which systems are told, and how; nil: it is not told.
type Options struct {
	Slurm      *slurm.Options
	Kubernetes *kubernetes.Options
}

// Check reports what is missing for informing the systems. The errors name the flags of the
// harness.
func (o Options) Check(ctx context.Context) error {
	var all []error
	if o.Slurm != nil {
		s, err := slurm.Find()
		if err == nil {
			err = s.Check(ctx, *o.Slurm)
		}
		all = append(all, prefixed("--slurm", err))
	}
	if o.Kubernetes != nil {
		c, err := kubernetes.Connect()
		if err == nil {
			err = c.Check(ctx, *o.Kubernetes)
		}
		all = append(all, prefixed("--kubernetes", err))
	}
	return errors.Join(all...)
}

// Failed returns the checks by which the node failed, as far as the systems know, and may take it back.
func (o Options) Failed(ctx context.Context) (checks []string, err error) {
	var all []error
	if o.Slurm != nil {
		var known []string
		s, err := slurm.Find()
		if err == nil {
			known, err = slurm.Failed(ctx, s, *o.Slurm)
		}
		checks, all = append(checks, known...), append(all, prefixed("--slurm", err))
	}
	if o.Kubernetes != nil {
		var known []string
		c, err := kubernetes.Connect()
		if err == nil {
			known, err = c.Failed(ctx, *o.Kubernetes)
		}
		checks, all = append(checks, known...), append(all, prefixed("--kubernetes", err))
	}
	return checks, errors.Join(all...)
}

// Act informs the systems, and passes to did what was done. If one system cannot be informed, the
// other still is.
func (o Options) Act(ctx context.Context, adm *certificate.Admitted, did func(whom, note string)) error {
	var all []error
	done := func(whom, note string, err error) {
		if err == nil && note != "" {
			did(whom, note)
		}
		all = append(all, prefixed(whom, err))
	}
	if o.Slurm != nil {
		var note string
		s, err := slurm.Find()
		if err == nil {
			note, err = slurm.Act(ctx, s, adm, *o.Slurm)
		}
		done("slurm", note, err)
	}
	if o.Kubernetes != nil {
		var note string
		c, err := kubernetes.Connect()
		if err == nil {
			note, err = c.Act(ctx, adm, *o.Kubernetes)
		}
		done("kubernetes", note, err)
	}
	return errors.Join(all...)
}

func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
