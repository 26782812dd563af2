package standin

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// makeHPCX makes HPC-X's archives. In stand-ins, builds of one version and architecture differ
// only in their names.
func (m *maker) makeHPCX(ctx context.Context) error {
	for _, h := range hpcxes {
		for _, arch := range m.Arches {
			tree, err := m.hpcxTree(ctx, h, arch)
			if err != nil {
				return err
			}
			for _, b := range h.builds {
				if err := m.packHPCX(ctx, h, b, arch, tree); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hpcxTree compiles the content of an HPC-X archive. UCX and the plugins link libibverbs, so the
// OFED packages are installed in the sandbox.
func (m *maker) hpcxTree(ctx context.Context, h hpcx, arch string) (string, error) {
	verbs, err := m.withVerbs(ctx, arch)
	if err != nil {
		return "", err
	}
	env := m.env(arch, "hpcx", "VERSION="+h.version, "OMPI="+h.ompi, "UCX="+h.ucx)
	dir, err := m.store.make("hpcx-"+h.version+"-"+arch, []any{verbs, env, contentHash("hpcx", "openmpi", "debs/lib.sh")}, func(dir string) error {
		return m.script(ctx, "hpcx/build.sh", dir, sandbox{layers: []string{verbs, m.roots[arch]}, env: env})
	})
	return filepath.Join(dir, "tree"), err
}

// withVerbs returns a layer above the root that contains Debian's libibverbs-dev.
func (m *maker) withVerbs(ctx context.Context, arch string) (string, error) {
	debian, err := m.fetchRDMA(ctx, arch)
	if err != nil {
		return "", err
	}
	dir, err := m.store.make("verbs-"+arch, []any{debian}, func(dir string) error {
		return sandbox{layers: []string{m.roots[arch]}, upper: filepath.Join(dir, "root"), mounts: map[string]string{"debian": debian}}.
			run(ctx, "/bin/sh", "-eu", "-c", "for d in /mnt/debian/libibverbs*.deb; do dpkg-deb -x $d /; done; ldconfig")
	})
	return filepath.Join(dir, "root"), err
}

func (m *maker) packHPCX(ctx context.Context, h hpcx, b hpcxBuild, arch, tree string) error {
	dist := h.dist(b, arch)
	dir, err := m.store.make(dist, []any{tree, contentHash("openmpi", "standin.mk")}, func(dir string) error {
		entries, err := readTree(tree, dist)
		if err != nil {
			return err
		}
		substitute(entries, map[string]string{"DIST": dist})
		// From 2.26 on there are two Open MPIs, and the name of the sources says which one.
		name := "openmpi-gitclone"
		if h.version >= "2.26" {
			name = "openmpi4-gitclone"
		}
		inner, err := m.openMPI(h, name)
		if err != nil {
			return err
		}
		entries = append(entries, archiveEntry{name: dist + "/sources/" + name + ".tar.gz", mode: 0o644, content: inner})
		return writeTarBz2(ctx, filepath.Join(dir, "archive"), entries)
	})
	if err != nil {
		return err
	}
	url := strings.NewReplacer("{v}", h.version, "{major}", b.cudaMajor, "{dist}", dist).Replace(h.url)
	return m.publish(url, filepath.Join(dir, "archive"))
}

// openMPI returns the archive of Open MPI's sources that HPC-X contains.
func (m *maker) openMPI(h hpcx, top string) ([]byte, error) {
	version := h.ompi
	if m.Faults["hpcx"] == WrongVersion {
		version = wrong(version)
	}
	entries, err := sources("openmpi", top, version, m.Faults["hpcx"])
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	if err := writeTar(zw, entries); err != nil {
		return nil, err
	}
	err = zw.Close()
	return packed.Bytes(), err
}

// makeEFA makes the EFA installers with their signatures.
func (m *maker) makeEFA(ctx context.Context) error {
	const root = "https://efa-installer.amazonaws.com/aws-efa-installer"
	if err := m.publish(root+".key", m.key.armored); err != nil {
		return err
	}
	for _, e := range efas {
		debs, err := m.efaDebs(ctx, e)
		if err != nil {
			return err
		}
		dir, err := m.store.make("efa-"+e.version, []any{debs, m.key.public, contentHash("efa")}, func(dir string) error {
			entries, err := efaEntries(e, debs)
			if err != nil {
				return err
			}
			file := filepath.Join(dir, "archive")
			if err := writeTarGz(file, entries); err != nil {
				return err
			}
			return m.key.sign([]string{"--output", file + ".sig", "--detach-sign", file})
		})
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "archive")
		if err := m.publish(root+"-"+e.version+".tar.gz", file); err != nil {
			return err
		}
		if err := m.publish(root+"-"+e.version+".tar.gz.sig", file+".sig"); err != nil {
			return err
		}
	}
	return nil
}

// efaDebs makes an installer's packages and returns them by architecture.
func (m *maker) efaDebs(ctx context.Context, e efa) (map[string][]string, error) {
	debs := map[string][]string{}
	for _, arch := range m.Arches {
		own, err := m.makeDebs(ctx, "efa/build.sh", arch, "efa", nil, "VERSION="+e.version, "OFI_NCCL="+e.ofiNCCL, "LIBFABRIC="+e.libfabric, "RDMA_CORE="+e.rdmaCore, "OPENMPI=4.1.7")
		if err != nil {
			return nil, err
		}
		rdma, err := m.makeRDMA(ctx, arch, e.rdmaCore)
		if err != nil {
			return nil, err
		}
		debs[arch] = append(own, rdma...)
	}
	return debs, nil
}

// efaEntries returns an installer's files: the script, and the packages by
// Ubuntu release and architecture.
func efaEntries(e efa, debs map[string][]string) ([]archiveEntry, error) {
	script, err := readSource("efa/efa_installer.sh")
	if err != nil {
		return nil, err
	}
	const top = "aws-efa-installer"
	entries := []archiveEntry{
		{name: top + "/efa_installer.sh", mode: 0o755, content: script},
		{name: top + "/README", mode: 0o644, content: []byte("A stand-in for AWS's EFA installer @VERSION@, written for assay's tests.\n")},
	}
	substitute(entries, map[string]string{"VERSION": e.version})
	for arch, files := range debs {
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, ubuntu := range []string{"2204", "2404"} {
				name, one := filepath.Base(file), true // for every release
				if prefix, rest, ok := strings.Cut(name, ".rdma-core_"); ok {
					name, one = "rdma-core_"+rest, prefix == "ubuntu"+ubuntu
				}
				if one {
					name = fmt.Sprintf("%s/DEBS/UBUNTU%s/%s/%s/%s", top, ubuntu, gnuMachine(arch), efaDirectory(name), name)
					entries = append(entries, archiveEntry{name: name, mode: 0o644, content: content})
				}
			}
		}
	}
	return entries, nil
}

// efaDirectory returns the part of the installer that a package belongs to.
func efaDirectory(deb string) string {
	switch name, _, _ := strings.Cut(deb, "_"); name {
	case "libfabric-aws-bin":
		return "libfabric"
	case "openmpi40-aws":
		return "openmpi"
	case "libnccl-ofi":
		return "aws-ofi-nccl"
	default:
		return "rdma-core"
	}
}
