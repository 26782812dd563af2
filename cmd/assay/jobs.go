package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"golang.org/x/mod/semver"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/outfile"
)

func jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Usage: "write and check jobs for Slurm, Kubernetes, Docker and mpirun",
		Subcommands: []*cli.Command{jobsListCommand(), jobsRenderCommand(), jobsCheckCommand()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return exit.Usagef("jobs has no command %q: list, render or check", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func jobsListCommand() *cli.Command {
	var form string
	return &cli.Command{
		Name: "list", Usage: "show the platforms that jobs can be rendered for, and their variants; -o json has every fact with its source",
		Flags:  []cli.Flag{grammar.Format(&form, "table", "json")},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			doc, err := jobs.Load()
			if err != nil {
				return err
			}
			if form == "json" {
				return writeJSON(c.App.Writer, doc)
			}
			tw := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
			fmt.Fprintln(tw, "PROFILE\tNODES\tGPUS\tARCH\tFABRIC\tVARIANTS\tPLATFORM")
			for _, p := range doc.Profiles {
				var has []string
				for _, v := range jobs.VariantNames {
					if _, ok := p.Variants[v]; ok {
						has = append(has, "--"+v)
					}
				}
				fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", p.ID, p.Nodes.Value, p.GPUs.Value, p.Arch.Value, p.Fabric, cmp.Or(strings.Join(has, " "), "-"), p.Title)
			}
			return tw.Flush()
		},
	}
}

type jobsRender struct {
	jobs.Options
	matrix     string
	variants   [7]bool // in the order of jobs.VariantNames
	env        cli.StringSlice
	hosts, out string
}

// variantUsage is in the order of jobs.VariantNames.
var variantUsage = [7]string{
	"reductions in InfiniBand's switches", "GDRCopy for NCCL", "sockets, without RDMA adapters", "nodes of at least two NVLink racks",
	"the platform's RoCE fabric instead of InfiniBand", "NCCL's plugin for Spectrum-X", "NVLink across nodes by NVIDIA's DRA driver (ComputeDomain)",
}

func jobsRenderCommand() *cli.Command {
	o := &jobsRender{}
	return &cli.Command{
		Name: "render", Usage: "write a job for a platform and a scheduler",
		ArgsUsage: "PROFILE",
		Description: "Ranks run `harness exec -- …`, which sets NCCL's, UCX's and libfabric's variables on each node by what it finds there;\n" +
			"with --no-exec the job has the profile's own, fixed. Exits 2, with all reasons, where the flags make no job.",
		Flags: o.flags(),
		BashComplete: func(c *cli.Context) {
			if last := os.Args[max(len(os.Args)-2, 0)]; strings.HasPrefix(last, "-") {
				cli.DefaultCompleteWithFlags(c.Command)(c)
				return
			}
			if doc, err := jobs.Load(); err == nil {
				for _, p := range doc.Profiles {
					fmt.Fprintln(c.App.Writer, p.ID)
				}
			}
		},
		Action: o.run,
	}
}

func (o *jobsRender) flags() []cli.Flag {
	text := func(dst *string, name, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Destination: dst}
	}
	flags := []cli.Flag{
		text(&o.Scheduler, "scheduler", "`NAME`: "+strings.Join(jobs.Schedulers, ", ")),
		&cli.IntFlag{Name: "nodes", Usage: "`N` nodes (default: the profile's)", Destination: &o.Nodes},
		&cli.IntFlag{Name: "gpus", Usage: "`N` GPUs a node (default: the profile's)", Destination: &o.GPUs},
	}
	for i, v := range jobs.VariantNames {
		flags = append(flags, &cli.BoolFlag{Name: v, Usage: variantUsage[i], Destination: &o.variants[i]})
	}
	return append(flags,
		text(&o.Run, "run", "`WHAT` ranks run: "+strings.Join(jobs.Runs, ", ")+" (default: certify)"),
		text(&o.Suite, "suite", "`NAME` of the suite of certify (default: fabric; node for one node, kubernetes and docker)"),
		text(&o.Op, "op", "`NAME` of a benchmark's operation (default: all_reduce)"),
		text(&o.Min, "min", "a benchmark's smallest `SIZE` (default: 8, of nccl-tests 512M)"),
		text(&o.Max, "max", "a benchmark's largest `SIZE` (default: 16G, of nccl-tests 8G)"),
		&cli.IntFlag{Name: "factor", Usage: "each size is `N` times the one before (default: 2)", Destination: &o.Factor},
		text(&o.Image, "image", "`REFERENCE` of the image (default: the matrix's newest for CUDA)"),
		text(&o.matrix, "matrix", "matrix `FILE` that names the image (default: ./matrix.yaml, else the embedded one)"),
		&cli.BoolFlag{Name: "no-exec", Usage: "fix the variables from the profile", Destination: &o.NoExec},
		&cli.StringSliceFlag{Name: "env", Usage: "set `NAME=VALUE`, too; may be repeated", Destination: &o.env},
		text(&o.Name, "name", "the job's `NAME` (default: made from the rest)"),
		&cli.DurationFlag{Name: "time", Usage: "the job is ended after `TIME` (default: 30m; of the suites fabric 75m, full 60m, acceptance 45m)", Destination: &o.Time},
		text(&o.OutputDir, "certificates", "certificates go to `DIR` (default: where the job is started; in pods they are only printed)"),
		text(&o.Site, "site", "labels and networks as `SITE` calls them, or none"),
		text(&o.Partition, "partition", "Slurm's `PARTITION`"),
		text(&o.Account, "account", "Slurm's `ACCOUNT`"),
		&cli.IntFlag{Name: "segment", Usage: "`N` nodes in one block of Slurm's topology, -1 to ask for none (default: the profile's)", Destination: &o.Segment},
		text(&o.ImageDir, "image-dir", "enroot keeps the image in the shared `DIR` (default: where sbatch is called)"),
		text(&o.Harness, "harness", "`PATH` of the harness on hosts (default: found by PATH)"),
		text(&o.Namespace, "namespace", "Kubernetes `NAMESPACE`"),
		text(&o.Claim, "claim", "`NAME` of a PersistentVolumeClaim for certificates"),
		text(&o.Selector, "selector", "nodes with the label `KEY=VALUE,VALUE`"),
		text(&o.Networks, "networks", "additional `NETWORKS` of pods, separated by spaces, as Multus calls them"),
		&cli.BoolFlag{Name: "daemonset", Usage: "kubernetes: on every node, which the pods hold until they are deleted", Destination: &o.DaemonSet},
		text(&o.hosts, "hosts", "`LIST` of a hostfile's hosts: node01,node02 or node[01-08]"),
		&cli.StringFlag{Name: "out", Usage: "write to `FILE` (default: stdout)", Destination: &o.out},
	)
}

func (o *jobsRender) run(c *cli.Context) error {
	if c.NArg() != 1 {
		return exit.Usagef("jobs render wants one PROFILE; \"assay jobs list\" has them all")
	}
	o.Profile = c.Args().First()
	for i, v := range jobs.VariantNames {
		if o.variants[i] {
			o.Variants = append(o.Variants, v)
		}
	}
	for _, kv := range o.env.Value() {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return exit.Usagef("--env %q is not NAME=VALUE", kv)
		}
		o.Env = append(o.Env, jobs.Var{Name: name, Value: value})
	}
	if o.hosts != "" {
		hosts, err := jobs.Hosts(o.hosts)
		if err != nil {
			return exit.Usagef("--hosts: %w", err)
		}
		o.Hosts = hosts
	}
	if o.Image == "" && o.Scheduler != jobs.SlurmBare && o.Scheduler != jobs.Hostfile {
		image, err := o.defaultImage()
		if err != nil {
			return err
		}
		o.Image = image
	}
	text, err := jobs.Render(o.Options)
	var no *jobs.Refusal
	if errors.As(err, &no) {
		return exit.Usagef("these flags make no job:\n  %s", strings.Join(no.Problems, "\n  "))
	}
	if err != nil {
		return err
	}
	if o.out != "" && o.out != "-" {
		return outfile.Write(o.out, text)
	}
	_, err = c.App.Writer.Write(text)
	return err
}

// defaultImage returns the moving tag of the newest image for the profile's platform.
func (o *jobsRender) defaultImage() (string, error) {
	doc, err := jobs.Load()
	if err != nil {
		return "", err
	}
	p, err := doc.Profile(o.Profile)
	if err != nil {
		return "", exit.With(exit.Usage, err)
	}
	f, targets, err := driver.ReadMatrix(o.matrix)
	if err != nil {
		return "", err
	}
	fits := slices.DeleteFunc(targets, func(t matrix.Target) bool {
		arch := slices.ContainsFunc(t.Platforms, func(pl recipe.Platform) bool { return pl.Arch == p.Arch.Value })
		return t.CUDA == "" || t.Variant != p.Image || !arch || len(t.Moving) == 0
	})
	if len(fits) == 0 {
		return "", exit.Usagef("%s has no CUDA image for %s on %s; name one with --image", f.Name, p.ID, p.Arch.Value)
	}
	newest := slices.MaxFunc(fits, func(a, b matrix.Target) int {
		return cmp.Or(semver.Compare("v"+a.CUDA, "v"+b.CUDA), cmp.Compare(a.Release, b.Release))
	})
	return f.Repository + ":" + newest.Moving[0], nil
}

type jobsCheck struct {
	form   string
	noSkip bool
}

func jobsCheckCommand() *cli.Command {
	o := &jobsCheck{}
	return &cli.Command{
		Name: "check", Usage: "check manifests, scripts and hostfiles, also those that assay did not write",
		ArgsUsage: "FILE|DIR...",
		Description: "It finds what other checkers cannot know: ranks, GPUs, launchers, NCCL's variables and RDMA adapters that contradict one another, and\n" +
			"what the MPI Operator refuses. Run kubeconform or kubectl apply --dry-run=server, shellcheck, and sbatch --test-only in addition.\n" +
			"A file called - is standard input. Of a directory it checks the jobs among *.sh, *.sbatch, *.slurm, *.yaml and *.yml, also below it, and\n" +
			"counts the other files; hidden ones are left out. Exits 1 if something is wrong.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "no-skip", Usage: "what could not be looked at is an error", Destination: &o.noSkip},
			grammar.Format(&o.form, "text", "json"),
		},
		Action: o.run,
	}
}

func (o *jobsCheck) run(c *cli.Context) error {
	if !c.Args().Present() {
		return exit.Usagef("jobs check wants a FILE or a DIR, or several")
	}
	in, err := readFiles(c.Args().Slice(), c.App.Reader)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	files := in.files
	found := append(in.found, jobs.Check(files, ncclVariable)...)
	count := map[string]int{}
	for _, f := range found {
		count[f.Level]++
	}
	if o.form == "json" {
		names := []string{}
		for _, f := range files {
			names = append(names, f.Name)
		}
		err = writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "files": names, "noJobs": in.none, "findings": append([]jobs.Finding{}, found...)})
	} else {
		for _, f := range found {
			fmt.Fprintln(c.App.Writer, f)
		}
		others := ""
		if in.none > 0 {
			others = fmt.Sprintf("; %d other files are no jobs", in.none)
		}
		_, err = fmt.Fprintf(c.App.Writer, "%d files, %d errors, %d warnings, %d skipped%s\n", len(files), count[jobs.LevelError], count[jobs.LevelWarning], count[jobs.LevelSkipped], others)
	}
	if err == nil && (count[jobs.LevelError] > 0 || o.noSkip && count[jobs.LevelSkipped] > 0) {
		return exit.With(exit.Fail, nil)
	}
	return err
}

// maxJob is the largest file of a job that is read, in bytes.
const maxJob = 16 << 20

// jobFiles are what the arguments of a check name.
type jobFiles struct {
	files []jobs.File
	none  int            // files of directories that are no jobs
	found []jobs.Finding // what of directories cannot be read
}

// readFiles reads all files, and those of directories. Its error says of each unreadable file, and each directory without a
// job, what is wrong.
func readFiles(names []string, in io.Reader) (out jobFiles, err error) {
	var errs []error
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			errs = append(errs, out.walk(name))
			continue
		}
		var text []byte
		var err error
		if name == "-" {
			text, err = infile.ReadAll(in, name, maxJob)
		} else {
			text, err = infile.ReadArgument(name, maxJob)
		}
		errs = append(errs, err)
		out.files = append(out.files, jobs.File{Name: name, Text: text})
	}
	return out, errors.Join(errs...)
}

// walk adds the jobs of a directory.
func (o *jobFiles) walk(dir string) error {
	files, none, found, err := jobs.Walk(dir, func(name string) ([]byte, error) { return infile.ReadArgument(name, maxJob) })
	if err == nil && len(files)+len(found) == 0 {
		err = fmt.Errorf("%s: there is no job in it (%d other files); name a directory with *.sh, *.sbatch, *.slurm, *.yaml or *.yml, or the files themselves", dir, none)
	}
	o.files, o.none, o.found = append(o.files, files...), o.none+none, append(o.found, found...)
	return err
}
