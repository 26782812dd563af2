package driver

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// Text writes the dry run for people.
func (run *DryRun) Text(out io.Writer) {
	for _, t := range run.Targets {
		for _, img := range t.Images {
			writeImage(out, run, t, img)
		}
	}
	section(out, "bases and sources", len(run.Bases))
	for _, b := range run.Bases {
		fmt.Fprintf(out, "  %s for %s\n    %s%s\n", b.Ref, b.Platform, digestText(b.Digest), tookBefore(b.Seconds))
		switch {
		case b.Packages != "":
			fmt.Fprintf(out, "    made from the package set %s\n", b.Packages)
		case b.Kind == recipe.FromImage:
			fmt.Fprintf(out, "    pulled from %s, size unknown\n", cmp.Or(b.From, b.Ref))
		default:
			fmt.Fprintf(out, "    part of assay, %s\n", size(b.Size))
		}
	}
	section(out, "downloads"+downloadSizes(run.Downloads), len(run.Downloads))
	for _, d := range run.Downloads {
		fmt.Fprintf(out, "  %s\n    %s, %s%s\n", cmp.Or(d.From, d.Ref), digestText(d.Digest), size(d.Size), tookBefore(d.Seconds))
	}
	section(out, "package sets", len(run.Packages))
	for _, s := range run.Packages {
		writeSet(out, s)
	}
	writeTime(out, run)
}

func section(out io.Writer, title string, n int) {
	if n > 0 {
		fmt.Fprintf(out, "%s\n", title)
	}
}

func writeImage(out io.Writer, run *DryRun, t dryTarget, img dryImage) {
	fmt.Fprintf(out, "%s %s", t.Target, img.Platform)
	if img.UpToDate != "" {
		fmt.Fprintf(out, "\n  up to date: %s is in %s\n", img.UpToDate, run.Output)
	} else {
		fmt.Fprintf(out, ", recipe %.12s\n", cmp.Or(img.Recipe, "unresolved"))
	}
	for _, tag := range t.Tags {
		fmt.Fprintf(out, "  tag %s\n", tag)
	}
	if len(t.Unresolved) > 0 {
		fmt.Fprintf(out, "  to be resolved first:\n    %s\n", strings.Join(t.Unresolved, "\n    "))
	}
	for _, s := range img.Stages {
		from := "nothing"
		if s.From.Kind != recipe.Scratch {
			from = string(s.From.Kind) + " " + s.From.Ref
		}
		fmt.Fprintf(out, "  stage %s on %s, from %s\n", s.Name, s.On, from)
		for _, v := range s.Env {
			fmt.Fprintf(out, "    env %s=%s\n", v.Name, v.Value)
		}
		for _, st := range s.Steps {
			writeStep(out, st)
		}
	}
	if len(img.After) > 0 {
		fmt.Fprintf(out, "  then\n")
		for _, a := range img.After {
			fmt.Fprintf(out, "    %s%s\n", a.Title, took(a.Seconds))
		}
		fmt.Fprintf(out, "    attach certificate, SBOM and provenance, enter it in %s\n", run.Output)
	}
	if run.Push != "" {
		fmt.Fprintf(out, "    push to %s\n", run.Push)
	}
	fmt.Fprintln(out)
}

func writeStep(out io.Writer, st dryStep) {
	if st.Shared {
		fmt.Fprintf(out, "    step %d: %s: as above\n", st.Number, st.Title)
		return
	}
	fmt.Fprintf(out, "    step %d: %s%s\n", st.Number, st.Title, took(st.Seconds))
	for _, step := range st.Does {
		switch s := step.(type) {
		case recipe.Apt:
			fmt.Fprintf(out, "      package set %s\n", s.Set)
			writeIndented(out, s.Script())
		case recipe.Copy:
			fmt.Fprintf(out, "      %s of %s %s\n", s.Src, s.From.Kind, s.From.Ref)
		case recipe.Run:
			writeRun(out, s)
		case recipe.Symlink:
			fmt.Fprintf(out, "      link %s to %s\n", s.Path, s.Target)
		case recipe.File:
			if s.Path == certificate.SpecPath {
				fmt.Fprintf(out, "      file %s, mode %04o: what the image declares of itself, %d bytes (-o json has them)\n", s.Path, s.Mode, len(s.Content))
				continue
			}
			fmt.Fprintf(out, "      file %s, mode %04o\n", s.Path, s.Mode)
			writeIndented(out, s.Content)
		}
	}
}

func writeRun(out io.Writer, s recipe.Run) {
	for _, m := range s.Mounts {
		fmt.Fprintf(out, "      mount %s: %s\n", m.Target, strings.TrimSpace(strings.Join([]string{m.Path, string(m.From.Kind), m.From.Ref}, " ")))
	}
	for _, v := range s.Env {
		fmt.Fprintf(out, "      env %s=%s\n", v.Name, v.Value)
	}
	if s.Network {
		fmt.Fprintln(out, "      with network")
	}
	writeIndented(out, s.Script)
}

// writeIndented prints a script or a file line by line.
func writeIndented(out io.Writer, s string) {
	for line := range strings.Lines(s) {
		fmt.Fprintf(out, "        | %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func writeSet(out io.Writer, s drySet) {
	if len(s.Packages) == 0 {
		fmt.Fprintf(out, "  %s: unresolved; asked for: %s\n", s.Name, strings.Join(s.Asked, " "))
		return
	}
	fmt.Fprintf(out, "  %s: %d packages, %s to download; the lock does not say how large they are installed\n", s.Name, len(s.Packages), size(s.Download))
	if len(s.Asked) > 0 {
		fmt.Fprintf(out, "    asked for: %s\n", strings.Join(s.Asked, " "))
	}
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, p := range s.Packages {
		fmt.Fprintf(tw, "    %s\t%s\t%s\t%s\tsha256:%s\t%s\n", p.Name, p.Version, p.Arch, size(p.Size), p.SHA256, p.URL)
	}
	tw.Flush()
}

func writeTime(out io.Writer, run *DryRun) {
	e := run.Estimate
	fmt.Fprintln(out, "time")
	switch {
	case e.Steps == 0:
		fmt.Fprintln(out, "  nothing is to be built")
	case e.Known == 0:
		fmt.Fprintln(out, "  no estimate: never built here")
	default:
		fmt.Fprintf(out, "  %s one after another, %s if all runs at the same time that can, by earlier builds here;\n", seconds(e.Sum), seconds(e.Longest))
		fmt.Fprintln(out, "  what the builder has in its cache takes no time")
		if left := e.Steps - e.Known; left > 0 {
			fmt.Fprintf(out, "  without %d of %d steps: never built here\n", left, e.Steps)
		}
	}
	fmt.Fprintf(out, "  for a builder on %s\n", run.Builder)
}

func took(s *float64) string {
	if s == nil {
		return " (no estimate: never built here)"
	}
	return " (" + seconds(*s) + ")"
}

// tookBefore is took for parts of steps: a missing estimate is reported only for the step.
func tookBefore(s *float64) string {
	if s == nil {
		return ""
	}
	return took(s)
}

// downloadSizes sums up the sizes that the lock contains.
func downloadSizes(list []drySource) string {
	var sum int64
	unknown := 0
	for _, d := range list {
		sum += d.Size
		if d.Size == 0 {
			unknown++
		}
	}
	out := fmt.Sprintf(": %d files", len(list))
	if sum > 0 {
		out += ", " + size(sum)
	}
	if unknown > 0 {
		out += fmt.Sprintf(", %d of unknown size", unknown)
	}
	return out
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", s)
	}
	return d.Round(time.Second).String()
}

func digestText(d string) string { return cmp.Or(d, "unresolved") }

func size(n int64) string {
	switch {
	case n == 0:
		return "size unknown"
	case n < 1e5:
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
