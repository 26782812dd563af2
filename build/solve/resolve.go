package solve

import (
	"context"
	"errors"
	"fmt"

	bkllb "github.com/moby/buildkit/client/llb"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/mirror"
	"github.com/assay-hpc/assay/build/recipe"
)

// ResolveDebs queries apt, inside the stage where a set is to be installed, for the packages that
// this would fetch, and for those that the stage has already.
func (s *Solver) ResolveDebs(ctx context.Context, r *recipe.Recipe, m component.Missing) (lock.PackageSet, error) {
	set := lock.PackageSet{Request: m.Request}
	b, err := daemon.For(s.Builders, m.Platform)
	if err != nil {
		return set, err
	}
	// Other stages may need content that is not resolved yet, or never will be.
	if err := s.Provider.Prepare(ctx, r.Below(m.Stage, m.Step), b.Native); err != nil {
		return set, err
	}
	def, err := s.resolveGraph(ctx, b, r, m)
	if err != nil {
		return set, err
	}
	err = s.read(ctx, b, def, "lock "+m.Key, func(read func(string) ([]byte, error)) error {
		trust, err := read("trust")
		if err != nil {
			return err
		}
		if err := s.Provider.checkTrust(string(trust)); err != nil {
			return err
		}
		text, err := read("uris")
		if err != nil {
			return err
		}
		if set.Packages, err = recipe.ParseURIs(string(text)); err != nil {
			return err
		}
		if text, err = read("installed"); err == nil {
			set.Installed = recipe.ParseInstalled(string(text), set.Packages)
		}
		return err
	})
	for i := range set.Packages {
		set.Packages[i].URL = s.Provider.Mirror.Name(set.Packages[i].URL)
	}
	return set, err
}

// resolveGraph returns the graph of the step that queries apt.
func (s *Solver) resolveGraph(ctx context.Context, b *daemon.Builder, r *recipe.Recipe, m component.Missing) (*bkllb.Definition, error) {
	state, err := llb.Before(r.Below(m.Stage, m.Step), m.Stage, m.Step, s.env(ctx, b))
	if err != nil {
		return nil, err
	}
	apt, ok := r.Stage(m.Stage).Steps[m.Step].(recipe.Apt)
	if !ok {
		return nil, fmt.Errorf("%s: step %d of stage %s installs no packages", m.Key, m.Step, m.Stage)
	}
	opts := []bkllb.RunOption{
		bkllb.Args([]string{"/bin/sh", "-euc", apt.ResolveScript(s.Provider.Mirror.Sed())}),
		bkllb.AddEnv("SOURCE_DATE_EPOCH", fmt.Sprint(s.Epoch.Unix())),
		bkllb.IgnoreCache, // the archive changes, the graph does not
		bkllb.WithCustomNamef("[lock] resolve %s", m.Key),
	}
	if s.Provider.Mirror.AptAuth() != "" {
		opts = append(opts, bkllb.AddSecret(recipe.AptAuthFile, bkllb.SecretID(aptAuth)))
	}
	return state.Run(opts...).AddMount("/out", bkllb.Scratch()).Marshal(ctx, bkllb.Platform(llb.OCIPlatform(m.Platform)))
}

// ResolveWheels asks pip, inside the stage that installs them, for the wheels of a source.
func (s *Solver) ResolveWheels(ctx context.Context, r *recipe.Recipe, m component.Missing) ([]recipe.Wheel, error) {
	b, err := daemon.For(s.Builders, m.Platform)
	if err != nil {
		return nil, err
	}
	below := r.Below(m.Stage, m.Step)
	if err := s.Provider.Prepare(ctx, below, b.Native); err != nil {
		return nil, err
	}
	state, err := llb.Before(below, m.Stage, m.Step, s.env(ctx, b))
	if err != nil {
		return nil, err
	}
	index, err := s.Provider.Mirror.URL(m.Source.Wheels)
	if err == nil && mirror.IsPath(index) {
		err = fmt.Errorf("%s: pip reads an index from a server, and --mirror names the directory %s", m.Source.Wheels, index)
	}
	if err != nil {
		return nil, err
	}
	requirements := bkllb.Scratch().File(bkllb.Mkfile("requirements.txt", 0o644, []byte(m.Source.Requirements)))
	opts := []bkllb.RunOption{
		bkllb.Args([]string{"/bin/sh", "-euc", recipe.WheelsScript}),
		bkllb.AddEnv("INDEX", index),
		bkllb.AddMount("/run/assay", requirements, bkllb.Readonly),
		bkllb.IgnoreCache, // the index changes, the graph does not
		bkllb.WithCustomNamef("[lock] resolve %s", m.Key),
	}
	if id := s.netrc(index); id != "" {
		opts = append(opts, bkllb.AddSecret("/root/.netrc", bkllb.SecretID(id)))
	}
	def, err := state.Run(opts...).AddMount("/out", bkllb.Scratch()).Marshal(ctx, bkllb.Platform(llb.OCIPlatform(m.Platform)))
	if err != nil {
		return nil, err
	}
	var wheels []recipe.Wheel
	err = s.read(ctx, b, def, "lock "+m.Key, func(read func(string) ([]byte, error)) error {
		text, err := read("report")
		if err != nil {
			return err
		}
		wheels, err = recipe.ParseReport(text)
		return err
	})
	for i := range wheels {
		wheels[i].URL = s.Provider.Mirror.Name(wheels[i].URL)
		if wheels[i].SHA256 == "" && err == nil { // the index states none
			wheels[i].SHA256, _, err = s.Provider.Sum(ctx, wheels[i].URL)
		}
		if err == nil {
			err = wheels[i].Validate()
		}
	}
	if err == nil && len(wheels) == 0 {
		err = errors.New("pip has nothing to install for these requirements")
	}
	return wheels, err
}
