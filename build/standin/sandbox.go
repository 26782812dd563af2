package standin

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A sandbox runs a script in a root that is an overlay on some layers, in its own mount and
// process namespaces: however it ends, no mount and no process outlives it.
type sandbox struct {
	layers []string          // directories, topmost first
	mounts map[string]string // name under /mnt to a directory or file of the host
	env    []string
	upper  string // where changes to the root are stored; "" discards them
}

// enter sets up the sandbox; its variables are in the environment. /tmp and /mnt are not part of
// the root, so their content is discarded.
const enter = `
mount -t overlay standin -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
mount -t proc proc "$ROOT/proc"
for d in dev mnt tmp; do mount -t tmpfs standin "$ROOT/$d"; done
mkdir -m 1777 "$ROOT/dev/shm"
for n in null zero full random urandom; do
	: > "$ROOT/dev/$n"
	mount --bind "/dev/$n" "$ROOT/dev/$n"
done
for m in $MOUNTS; do
	from=${m#*=} to=$ROOT/mnt/${m%%=*}
	if [ -d "$from" ]; then mkdir "$to"; else : > "$to"; fi
	mount --bind "$from" "$to"
done
cd "$ROOT"
exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
	DEBIAN_FRONTEND=noninteractive "$@"
`

// run runs a command line of the root, such as a script under /mnt.
func (s sandbox) run(ctx context.Context, argv ...string) error {
	work, err := os.MkdirTemp("", "standin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	upper := s.upper
	if upper == "" {
		upper = filepath.Join(work, "upper")
	} else if work, err = os.MkdirTemp(filepath.Dir(upper), "work-"); err != nil { // overlayfs needs both on one file system
		return err
	} else {
		defer os.RemoveAll(work)
	}
	for _, d := range []string{upper, filepath.Join(work, "work"), filepath.Join(work, "root")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	var mounts []string
	for _, name := range slices.Sorted(maps.Keys(s.mounts)) {
		mounts = append(mounts, name+"="+s.mounts[name])
	}
	args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-eu", "-c", enter, "sh"}, s.env...)
	cmd := exec.CommandContext(ctx, "unshare", append(args, argv...)...)
	cmd.Env = append(os.Environ(), "LOWER="+strings.Join(s.layers, ":"), "UPPER="+upper, "WORK="+filepath.Join(work, "work"),
		"ROOT="+filepath.Join(work, "root"), "MOUNTS="+strings.Join(mounts, " "))
	return runLogged(cmd, strings.Join(argv, " "))
}

// runLogged runs cmd; an error contains the end of its output.
func runLogged(cmd *exec.Cmd, what string) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, tail(out.String(), 30))
	}
	return nil
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// script runs a script of testdata, which writes to /mnt/out.
func (m *maker) script(ctx context.Context, name, out string, s sandbox) error {
	mounts := map[string]string{"in": m.sources, "out": out}
	maps.Copy(mounts, s.mounts)
	s.mounts = mounts
	return s.run(ctx, "/bin/sh", "-eu", "/mnt/in/"+name)
}
