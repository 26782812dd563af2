package component

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// finish assembles the image's stage. Everything that defines the environment of processes (the
// image's configuration, /etc/profile.d, ld.so.conf.d, sudo's env_keep) is derived here from the
// same few lists.
func (b *builder) finish() *recipe.Recipe {
	b.environmentFiles()
	s := recipe.Stage{Name: "image", From: b.baseOf(b.Target, b.Platform), Steps: append(b.compareLibc(), b.sources...)}
	if len(b.packages) > 0 {
		// Our own base is as old as its pinned packages, so it is upgraded. The vendor of any
		// other base keeps it current.
		s.Steps = append(s.Steps, b.apt(s, b.Target.Name, b.Target.Base.Debootstrap != nil, b.packages...))
	}
	s.Steps = append(s.Steps, b.after...)
	s.Steps = append(s.Steps, b.own.sources...)
	if len(b.own.packages) > 0 {
		s.Steps = append(s.Steps, b.apt(s, b.Target.Name+ownSet, false, b.own.packages...))
	}
	s.Steps = append(s.Steps, b.own.after...)
	s.Steps = append(s.Steps, b.files...)
	s.Steps = append(s.Steps, b.copies...)
	if len(b.libs()) > 0 || b.copiesLibraries() {
		s.Steps = append(s.Steps, recipe.Run{Title: "ldconfig", Script: "ldconfig; rm -f /var/cache/ldconfig/aux-cache\n"})
	}
	return &recipe.Recipe{
		Target: b.Target.Name, Platform: b.Platform, Stages: append(b.stages, s),
		Config: recipe.Config{Env: b.vars(), Labels: b.labels(), WorkingDir: b.workDir, Cmd: []string{"/bin/bash"}}, Components: b.components, Absent: b.absent,
	}
}

func specText(spec certificate.ImageSpec) string {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		panic("component: " + err.Error()) // only plain data
	}
	return string(text) + "\n"
}

func (b *builder) copiesLibraries() bool {
	for _, st := range b.copies {
		if c := st.(recipe.Copy); strings.HasPrefix(c.Dst, "/usr/lib") || c.Dst == "/usr/" || c.Dst == "/" {
			return true
		}
	}
	return false
}

// labels returns OCI's pre-defined annotations, as labels. They override the base's labels, which
// give the name and version of the base. There is no revision label: a commit that does not
// change the image must not change its digest. The provenance records the commit.
func (b *builder) labels() map[string]string {
	t := b.Target
	what := "HPC userspace (MPI, UCX, RDMA)"
	if t.CUDA != "" {
		what = "CUDA " + t.CUDA + " with NCCL, MPI, UCX and RDMA"
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "assay " + t.Name,
		"org.opencontainers.image.description": fmt.Sprintf("%s on %s %s, and the harness that certifies it", what, strings.ToUpper(t.Distro[:1])+t.Distro[1:], t.Release),
		"org.opencontainers.image.ref.name":    t.Name,
		"org.opencontainers.image.version":     strings.Trim(strings.ReplaceAll(t.Tag, "{recipe}", ""), "-_."),
		"org.opencontainers.image.licenses":    "Apache-2.0 AND LicenseRef-see-SBOM",
		"dev.assay.target":                     t.Name,
	}
	if base := b.baseOf(t, b.Platform); base.Kind == recipe.FromImage {
		labels["org.opencontainers.image.base.name"] = base.Ref
		labels["org.opencontainers.image.base.digest"] = base.Digest
	}
	// ghcr.io shows an image with the repository that this label names.
	if owner, rest, ok := strings.Cut(strings.TrimPrefix(b.Repository, "ghcr.io/"), "/"); ok && strings.HasPrefix(b.Repository, "ghcr.io/") {
		name, _, _ := strings.Cut(rest, "/")
		labels["org.opencontainers.image.source"] = "https://github.com/" + owner + "/" + name
	}
	maps.Copy(labels, b.ownLabels)
	return labels
}

// vars returns the image's variables. Lists are prepended to the base's values.
func (b *builder) vars() []recipe.Var {
	var vars []recipe.Var
	for _, l := range b.lists {
		vars = append(vars, recipe.Var{Name: l.name, Value: strings.Join(l.dirs, ":") + ":${" + l.name + "}"})
	}
	for _, n := range b.envOrder {
		vars = append(vars, recipe.Var{Name: n, Value: b.env[n]})
	}
	return vars
}

// environmentFiles passes the image's variables to processes that do not inherit them: login
// shells, sudo, and programs that sshd starts without a shell.
func (b *builder) environmentFiles() {
	if len(b.lists)+len(b.envOrder) == 0 {
		return
	}
	var profile strings.Builder
	fmt.Fprintln(&profile, "# Written by assay from the recipe: what a login shell shares with the image's configuration.")
	for _, l := range b.lists {
		fmt.Fprintf(&profile, "export %s=\"%s${%s:+:$%s}\"\n", l.name, strings.Join(l.dirs, ":"), l.name, l.name)
	}
	var keep []string
	for _, n := range b.envOrder {
		if strings.Contains(b.env[n], "${") {
			continue // extends a variable of the base, which only the configuration knows
		}
		fmt.Fprintf(&profile, "export %s=%q\n", n, b.env[n])
		if !strings.Contains(n, "PATH") {
			keep = append(keep, n)
		}
	}
	b.file("/etc/profile.d/assay.sh", 0o644, profile.String())
	if len(keep) > 0 {
		b.file("/etc/sudoers.d/assay", 0o440, "Defaults env_keep += \""+strings.Join(keep, " ")+"\"\n")
	}
	if libs := b.libs(); len(libs) > 0 {
		b.file("/etc/ld.so.conf.d/assay.conf", 0o644, strings.Join(libs, "\n")+"\n")
	}
}
