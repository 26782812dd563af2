package standin

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An image is one base image, as an index over the architectures.
type image struct {
	base   Base
	index  v1.ImageIndex
	images []v1.Image
	digest string
}

// A layer is a gzipped layer with its blob in the pool. It implements v1.Layer.
type layer struct {
	Blob, Diff v1.Hash
	Bytes      int64
	file       string
}

func (l *layer) Digest() (v1.Hash, error)             { return l.Blob, nil }
func (l *layer) DiffID() (v1.Hash, error)             { return l.Diff, nil }
func (l *layer) Size() (int64, error)                 { return l.Bytes, nil }
func (l *layer) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)   { return os.Open(l.file) }
func (l *layer) Uncompressed() (io.ReadCloser, error) { return nil, fmt.Errorf("not needed") }

// makeImages makes every base image: the shared root, a layer for the Ubuntu
// release, and the toolkit of the CUDA version.
func (m *maker) makeImages(ctx context.Context) error {
	for _, b := range m.Bases {
		img := image{base: b, index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
		for _, arch := range m.Arches {
			one, err := m.makeImage(ctx, b, arch)
			if err != nil {
				return fmt.Errorf("%s: %w", b.Ref(), err)
			}
			img.images = append(img.images, one)
			img.index = mutate.AppendManifests(img.index, mutate.IndexAddendum{
				Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
			})
		}
		digest, err := img.index.Digest()
		if err != nil {
			return err
		}
		img.digest = digest.String()
		m.up.images = append(m.up.images, img)
	}
	return nil
}

// makeImage makes one base image for one architecture.
func (m *maker) makeImage(ctx context.Context, b Base, arch string) (v1.Image, error) {
	toolkit, err := m.makeToolkit(ctx, b.CUDA, arch)
	if err != nil {
		return nil, err
	}
	release, err := m.makeRelease(b.Ubuntu, arch)
	if err != nil {
		return nil, err
	}
	// Topmost first, as an overlay needs them; an image's layers are in the reverse order.
	dirs := []string{toolkit, release, m.roots[arch]}
	m.mu.Lock()
	m.up.roots[arch+" "+b.CUDA+" "+b.Ubuntu] = dirs
	m.mu.Unlock()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i := len(dirs) - 1; i >= 0; i-- {
		l, err := m.makeLayer(dirs[i])
		if err != nil {
			return nil, err
		}
		add := mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "assay stand-in"}}
		if img, err = mutate.Append(img, add); err != nil {
			return nil, err
		}
	}
	if img, err = configure(img, b, arch); err != nil {
		return nil, err
	}
	return img, m.keepConfig(img)
}

// makeToolkit returns the layer of a stand-in CUDA toolkit, as a directory.
func (m *maker) makeToolkit(ctx context.Context, cuda, arch string) (string, error) {
	nccl := baseNCCL[cuda]
	if nccl == "" {
		return "", fmt.Errorf("no stand-in for CUDA %s", cuda)
	}
	machine, inputs, err := m.makeMachine(ctx, cuda)
	if err != nil {
		return "", err
	}
	inputs = append(inputs, m.roots[arch], nccl, contentHash("cuda", "debs/lib.sh"))
	dir, err := m.store.make("toolkit-"+cuda+"-"+arch, inputs, func(dir string) error {
		debs := filepath.Join(dir, "debs")
		if err := os.Mkdir(debs, 0o755); err != nil {
			return err
		}
		return m.script(ctx, "cuda/build.sh", debs, sandbox{
			layers: []string{m.roots[arch]}, upper: filepath.Join(dir, "root"), env: m.env(arch, "", "CUDA="+cuda, "NCCL="+nccl),
			mounts: map[string]string{"machine": machine},
		})
	})
	return filepath.Join(dir, "root"), err
}

// makeRelease returns, as a directory, the layer that makes Debian identify itself as an Ubuntu
// release and that contains the CUDA apt repository's source and key.
func (m *maker) makeRelease(ubuntu, arch string) (string, error) {
	name := ubuntus[ubuntu]
	if name == "" {
		return "", fmt.Errorf("no stand-in for Ubuntu %s", ubuntu)
	}
	dir, err := m.store.make("release-"+ubuntu+"-"+arch, []any{m.key.public}, func(dir string) error {
		key, err := os.ReadFile(m.key.public)
		if err != nil {
			return err
		}
		sourceFile, sourceLine := cudaSource(ubuntu, arch)
		for path, content := range map[string]string{
			"usr/lib/os-release":                          fmt.Sprintf("PRETTY_NAME=\"Ubuntu %[1]s (stand-in on Debian %[3]s)\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"%[1]s\"\nVERSION=\"%[1]s (stand-in)\"\nVERSION_CODENAME=%[2]s\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=%[2]s\n", ubuntu, name, suite),
			"etc/lsb-release":                             fmt.Sprintf("DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=%[1]s\nDISTRIB_CODENAME=%[2]s\nDISTRIB_DESCRIPTION=\"Ubuntu %[1]s (stand-in)\"\n", ubuntu, name),
			"usr/share/keyrings/cuda-archive-keyring.gpg": string(key),
			"etc/apt/sources.list.d/" + sourceFile:        sourceLine + "\n",
		} {
			to := filepath.Join(dir, "root", path)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(to, []byte(content), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	return filepath.Join(dir, "root"), err
}

// makeLayer packs a directory as a layer and stores it in the pool.
func (m *maker) makeLayer(root string) (*layer, error) {
	if err := os.MkdirAll(m.up.pool, 0o755); err != nil {
		return nil, err
	}
	dir, err := m.store.make("layer", []any{root}, func(dir string) error {
		blob, err := os.CreateTemp(m.up.pool, "part-")
		if err != nil {
			return err
		}
		defer os.Remove(blob.Name()) // unless it is renamed below
		defer blob.Close()
		packed, plain := sha256.New(), sha256.New()
		zw, _ := gzip.NewWriterLevel(io.MultiWriter(blob, packed), gzip.BestSpeed)
		if err := writeLayer(io.MultiWriter(zw, plain), root); err != nil {
			return err
		}
		if err := zw.Close(); err != nil {
			return err
		}
		size, err := blob.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		sum := hex.EncodeToString(packed.Sum(nil))
		info, err := json.Marshal(layer{v1.Hash{Algorithm: "sha256", Hex: sum},
			v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(plain.Sum(nil))}, size, ""})
		if err != nil {
			return err
		}
		if err := os.Rename(blob.Name(), filepath.Join(m.up.pool, sum)); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "layer.json"), info, 0o644)
	})
	if err != nil {
		return nil, err
	}
	info, err := os.ReadFile(filepath.Join(dir, "layer.json"))
	if err != nil {
		return nil, err
	}
	l := &layer{}
	if err := json.Unmarshal(info, l); err != nil {
		return nil, err
	}
	l.file = filepath.Join(m.up.pool, l.Blob.Hex)
	return l, nil
}

// configure gives an image the same configuration as NVIDIA's.
func configure(img v1.Image, b Base, arch string) (v1.Image, error) {
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	majorMinor := b.CUDA[:strings.LastIndex(b.CUDA, ".")]
	nccl := baseNCCL[b.CUDA]
	cf.OS, cf.Architecture, cf.Created = "linux", arch, v1.Time{Time: epoch}
	cf.Config = v1.Config{
		Cmd:        []string{"/bin/bash"},
		Entrypoint: []string{"/opt/nvidia/nvidia_entrypoint.sh"},
		Labels: map[string]string{
			"maintainer": keyUser, "stand-in": "true",
			"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": b.Ubuntu,
		},
		Env: []string{
			"PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"NVARCH=" + cudaRepoArch(arch),
			"NVIDIA_REQUIRE_CUDA=cuda>=" + majorMinor,
			"NV_CUDA_CUDART_VERSION=" + b.CUDA + "-1",
			"CUDA_VERSION=" + b.CUDA,
			"LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
			"NVIDIA_VISIBLE_DEVICES=all",
			"NVIDIA_DRIVER_CAPABILITIES=compute,utility",
			"NV_CUDA_LIB_VERSION=" + b.CUDA + "-1",
			"NV_LIBNCCL_PACKAGE=libnccl2=" + nccl + "+cuda" + majorMinor,
			"NV_LIBNCCL_DEV_PACKAGE=libnccl-dev=" + nccl + "+cuda" + majorMinor,
			"NCCL_VERSION=" + nccl,
			"LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
		},
	}
	return mutate.ConfigFile(img, cf)
}

// keepConfig stores an image's configuration in the pool.
func (m *maker) keepConfig(img v1.Image) error {
	raw, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	name, err := img.ConfigName()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.up.pool, name.Hex), raw, 0o644)
}
