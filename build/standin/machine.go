package standin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The code that assay compiles from its own source needs what no stand-in contains: CUDA's
// complete driver header and, for kernels, a compiler. They are taken from this machine, if it
// has them; .ci/deps-cuda installs them.

// Header returns the path of this machine's cuda.h. If there is one, the base images of CUDA 12
// contain it instead of the stand-in's. Without it the harness of CUDA images cannot be compiled.
func Header() (string, error) {
	for _, dir := range []string{"/usr/local/cuda/include", "/usr/include"} {
		file := filepath.Join(dir, "cuda.h")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("no cuda.h on this machine: .ci/deps-cuda installs a CUDA toolkit")
}

// Compiler returns the path of this machine's nvcc.
func Compiler() (string, error) {
	for _, name := range []string{"nvcc", "/usr/local/cuda/bin/nvcc"} {
		if file, err := exec.LookPath(name); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("no nvcc on this machine: .ci/deps-cuda installs a CUDA toolkit")
}

// profile tells nvcc where its parts are in the directory that copyCompiler fills.
const profile = `TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
`

// copying is copyCompiler's script.
const copying = `mkdir -p bin nvvm/bin nvvm/libdevice include
if [ -d "$PACKAGED" ]; then
	cp "$PACKAGED/bin/nvcc" /usr/bin/ptxas bin/
	cp "$PACKAGED/bin/cicc" nvvm/bin/
	cp -L "$PACKAGED"/libdevice/*.bc nvvm/libdevice/
	dpkg -L nvidia-cuda-dev | sed -n 's|^/usr/include/||p' | while read -r f; do
		if [ -d "/usr/include/$f" ]; then mkdir -p "include/$f"; else cp -L "/usr/include/$f" "include/$f"; fi
	done
else
	top=$(dirname "$(dirname "$(readlink -f "$NVCC")")")
	cp "$top/bin/nvcc" "$top/bin/ptxas" bin/
	cp "$top/nvvm/bin/cicc" nvvm/bin/
	cp -L "$top"/nvvm/libdevice/*.bc nvvm/libdevice/
	cp -rL "$top/include/." include/
fi
`

// copyCompiler copies to dir what nvcc needs to compile kernels, in the layout of NVIDIA's
// toolkit.
func copyCompiler(ctx context.Context, dir string) error {
	nvcc, err := Compiler()
	if err != nil {
		return err
	}
	// Debian's and Ubuntu's package spreads the toolkit over the system.
	packaged := "/usr/lib/nvidia-cuda-toolkit"
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", copying)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PACKAGED="+packaged, "NVCC="+nvcc)
	if err := runLogged(cmd, "copying nvcc"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bin", "nvcc.profile"), []byte(profile), 0o644)
}

// makeMachine returns a directory with the parts that a toolkit takes from this machine, and the
// inputs that it depends on.
func (m *maker) makeMachine(ctx context.Context, cuda string) (string, []any, error) {
	header, missing := Header()
	inputs := []any{"no header", "no compiler"}
	// CUDA 13 keeps the stand-in's: it represents the change that broke programs written for 12.
	with := missing == nil && strings.HasPrefix(cuda, "12.")
	if with {
		sum, err := m.store.sum(header)
		if err != nil {
			return "", nil, err
		}
		inputs[0] = sum
	}
	if m.Compiler {
		nvcc, err := Compiler()
		if err != nil {
			return "", nil, err
		}
		version, err := exec.CommandContext(ctx, nvcc, "--version").Output()
		if err != nil {
			return "", nil, fmt.Errorf("%s --version: %w", nvcc, err)
		}
		inputs[1] = string(version)
	}
	dir, err := m.store.make("machine", append([]any{profile, copying}, inputs...), func(dir string) error {
		if with {
			text, err := os.ReadFile(header)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "cuda.h"), text, 0o644); err != nil {
				return err
			}
		}
		if !m.Compiler {
			return nil
		}
		compiler := filepath.Join(dir, "compiler")
		if err := os.Mkdir(compiler, 0o755); err != nil {
			return err
		}
		return copyCompiler(ctx, compiler)
	})
	return dir, inputs, err
}
