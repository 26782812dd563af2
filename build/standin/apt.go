package standin

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A repository is a flat apt repository at one URL: packages and indexes are in one directory, as
// in NVIDIA's.
type repository struct {
	url    string // ends in a slash
	origin string
	arch   string
	debs   []string // files
}

// makeRepository signs a repository and publishes it.
func (m *maker) makeRepository(r repository) error {
	slices.SortFunc(r.debs, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	dir, err := m.store.make("apt", []any{r, m.key.public}, func(dir string) error {
		packages, err := m.packages(r.debs)
		if err != nil {
			return err
		}
		var zipped bytes.Buffer
		zw := gzip.NewWriter(&zipped)
		zw.Write(packages)
		zw.Close()
		for name, content := range map[string][]byte{
			"Packages": packages, "Packages.gz": zipped.Bytes(), "Release": release(r, packages, zipped.Bytes()),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				return err
			}
		}
		in := filepath.Join(dir, "Release")
		return m.key.sign(
			[]string{"--output", filepath.Join(dir, "InRelease"), "--clearsign", in},
			[]string{"--armor", "--output", filepath.Join(dir, "Release.gpg"), "--detach-sign", in})
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"Packages", "Packages.gz", "Release", "InRelease", "Release.gpg"} {
		if err := m.publish(r.url+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, deb := range r.debs {
		if err := m.publish(r.url+filepath.Base(deb), deb); err != nil {
			return err
		}
	}
	return nil
}

// packages returns the index of packages.
func (m *maker) packages(debs []string) ([]byte, error) {
	var index bytes.Buffer
	for _, deb := range debs {
		control, err := exec.Command("dpkg-deb", "--field", deb).Output()
		if err != nil {
			return nil, fmt.Errorf("dpkg-deb --field %s: %w", deb, err)
		}
		info, err := os.Stat(deb)
		if err != nil {
			return nil, err
		}
		sum, err := m.store.sum(deb)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&index, "%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n\n", bytes.TrimSpace(control), filepath.Base(deb), info.Size(), sum)
	}
	return index.Bytes(), nil
}

func release(r repository, packages, zipped []byte) []byte {
	return fmt.Appendf(nil, "Origin: %s (stand-in)\nLabel: %s\nArchitectures: %s\nDate: %s\nSHA256:\n %x %d Packages\n %x %d Packages.gz\n",
		r.origin, r.origin, r.arch, epoch.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"),
		sha256.Sum256(packages), len(packages), sha256.Sum256(zipped), len(zipped))
}

// cudaSource returns the file name and the line of the CUDA repository's source, as in the base
// images.
func cudaSource(ubuntu, arch string) (file, line string) {
	repoArch := cudaRepoArch(arch)
	return "cuda-ubuntu" + undotted(ubuntu) + "-" + repoArch + ".list",
		"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] " + cudaRepoURL(ubuntu, arch) + " /"
}

func cudaRepoURL(ubuntu, arch string) string {
	return "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu" + undotted(ubuntu) + "/" + cudaRepoArch(arch) + "/"
}

// makeCUDARepos makes the CUDA repository of every Ubuntu and architecture:
// cuDNN, DCGM, and the keyring package.
func (m *maker) makeCUDARepos(ctx context.Context) error {
	for _, arch := range m.Arches {
		for ubuntu := range ubuntus {
			debs, err := m.cudaDebs(ctx, ubuntu, arch)
			if err != nil {
				return err
			}
			url := cudaRepoURL(ubuntu, arch)
			if err := m.makeRepository(repository{url, "NVIDIA", arch, debs}); err != nil {
				return err
			}
			if err := m.publish(url+"3bf863cc.pub", m.key.armored); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *maker) cudaDebs(ctx context.Context, ubuntu, arch string) ([]string, error) {
	file, line := cudaSource(ubuntu, arch)
	all, err := m.makeDebs(ctx, "debs/keyring.sh", arch, "", map[string]string{"key.gpg": m.key.public}, "SOURCE_FILE="+file, "SOURCE_LINE="+line)
	if err != nil {
		return nil, err
	}
	for _, c := range cudnns {
		for _, major := range c.cudaMajor {
			if ubuntu < c.since || ubuntu > c.until {
				continue
			}
			debs, err := m.makeDebs(ctx, "debs/cudnn.sh", arch, "cudnn", nil, "VERSION="+c.version, "CUDA_MAJOR="+major)
			if err != nil {
				return nil, err
			}
			all = append(all, debs...)
		}
	}
	for _, d := range dcgms {
		if ubuntu < d.since {
			continue
		}
		debs, err := m.makeDebs(ctx, "debs/dcgm.sh", arch, "dcgm", nil, "VERSION="+d.version)
		if err != nil {
			return nil, err
		}
		all = append(all, debs...)
	}
	return all, nil
}

// makeDOCARepos makes the DOCA repositories: the OFED userspace.
func (m *maker) makeDOCARepos(ctx context.Context) error {
	const root = "https://linux.mellanox.com/public/repo/doca/"
	for _, d := range docas {
		for _, arch := range m.Arches {
			debs, err := m.makeRDMA(ctx, arch, d.packages)
			if err != nil {
				return err
			}
			xpmem, err := m.makeDebs(ctx, "debs/xpmem.sh", arch, "", nil, "VERSION="+d.packages)
			if err != nil {
				return err
			}
			debs = append(debs, xpmem...)
			for ubuntu := range ubuntus {
				url := root + d.version + "/ubuntu" + ubuntu + "/" + docaRepoArch(arch) + "/"
				if ubuntu < d.since || ubuntu > d.until {
					continue
				}
				if err := m.makeRepository(repository{url, "Mellanox Technologies", arch, debs}); err != nil {
					return err
				}
				if err := m.publish(url+"doca_keyring.gpg", m.key.public); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// makeRDMA returns Debian's RDMA packages under another version.
func (m *maker) makeRDMA(ctx context.Context, arch, version string) ([]string, error) {
	debian, err := m.fetchRDMA(ctx, arch)
	if err != nil {
		return nil, err
	}
	return m.makeDebs(ctx, "debs/rdma.sh", arch, "", map[string]string{"debian": debian}, "VERSION="+version)
}

// fetchRDMA returns a directory of Debian's own RDMA packages.
func (m *maker) fetchRDMA(ctx context.Context, arch string) (string, error) {
	return m.store.make("debian-rdma-"+arch, []any{m.roots[arch], contentHash("debs/fetch.sh")}, func(dir string) error {
		return m.script(ctx, "debs/fetch.sh", dir, sandbox{
			layers: []string{m.roots[arch]}, env: m.env(arch, ""), mounts: map[string]string{"resolv.conf": "/etc/resolv.conf"},
		})
	})
}

// makeDebs runs a script of testdata that builds packages, and returns them.
func (m *maker) makeDebs(ctx context.Context, script, arch, component string, mounts map[string]string, env ...string) ([]string, error) {
	env = m.env(arch, component, env...)
	name := strings.TrimSuffix(filepath.Base(script), ".sh")
	inputs := []any{m.roots[arch], contentHash(filepath.Dir(script), "debs/lib.sh", "openmpi"), mounts, env}
	dir, err := m.store.make(name, inputs, func(dir string) error {
		return m.script(ctx, script, dir, sandbox{layers: []string{m.roots[arch]}, mounts: mounts, env: env})
	})
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*.deb"))
}
