package image

import (
	"context"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/confine"
)

// notInside is the reason why programs of another root directory are not run.
const notInside = "programs run only inside the image, and its root is another directory here (--root)"

// run runs a program of the image in its environment, without a shell, and returns the combined
// stdout and stderr. The error is one line.
func (s *state) run(ctx context.Context, env *suite.Env, p confine.Program) (string, error) {
	file, err := env.Root.LookPath(p.Args[0], env.Getenv("PATH"))
	if err != nil {
		return "", err
	}
	p.File = file
	p.Env = append(env.Environ[:len(env.Environ):len(env.Environ)], p.Env...)
	o := s.Runner.Run(ctx, p)
	return string(o.Output), o.Describe(p.Args[0])
}
