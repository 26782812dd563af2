// Package daemon finds buildkitd for a build: the builders that the user
// names, or one of our own that is started for the run and stopped after it.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/state"
	"github.com/moby/buildkit/client"
)

// A Builder is one buildkitd and the platforms that it can build.
type Builder struct {
	Addr      string // without user and password: it is printed and recorded
	Client    *client.Client
	Native    recipe.Platform
	Platforms []recipe.Platform // Native first, then the emulated ones

	// Set only for a daemon that this package started.
	stop func() error
	root string
	pid  int
}

// Close closes the connection, and stops the daemon if this package started it.
func (b *Builder) Close() error {
	err := b.Client.Close()
	if b.stop != nil {
		err = errors.Join(err, b.stop())
	}
	return err
}

// Supports reports whether the builder can run the platform at all.
func (b *Builder) Supports(p recipe.Platform) bool {
	for _, have := range b.Platforms {
		if have == p {
			return true
		}
	}
	return false
}

// Options say how to get a builder.
type Options struct {
	Addrs    []string // from --builder or BUILDKIT_HOST; empty means one of our own
	StateDir string   // of our own daemon
	Binary   string   // of our own daemon; "" means look for it
	Log      func(format string, args ...any)
}

// Connect returns the builders, ready to use.
func Connect(ctx context.Context, o Options) ([]*Builder, error) {
	if len(o.Addrs) == 0 {
		b, err := start(ctx, o)
		if err != nil {
			return nil, err
		}
		return []*Builder{b}, nil
	}
	var all []*Builder
	for _, addr := range o.Addrs {
		b, err := dial(ctx, addr)
		if err != nil {
			for _, b := range all {
				b.Close()
			}
			return nil, fmt.Errorf("builder %s: %w", plain(addr), err)
		}
		all = append(all, b)
	}
	return all, nil
}

// For returns the best builder for a platform: one that runs it natively
// before one that emulates it.
func For(builders []*Builder, p recipe.Platform) (*Builder, error) {
	for _, b := range builders {
		if b.Native == p {
			return b, nil
		}
	}
	for _, b := range builders {
		if b.Supports(p) {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no builder runs %s; give one with --builder, or let this machine emulate it: make deps installs qemu-user-static and registers it", p)
}

func dial(ctx context.Context, addr string) (*Builder, error) {
	c, err := client.New(ctx, addr)
	if err != nil {
		return nil, &plainError{addr, err}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	workers, err := c.ListWorkers(ctx)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("it does not answer: %w", &plainError{addr, err})
	}
	b := &Builder{Addr: plain(addr), Client: c}
	for _, w := range workers {
		for _, p := range w.Platforms {
			if rp := (recipe.Platform{OS: p.OS, Arch: p.Architecture}); p.Variant == "" && !b.Supports(rp) {
				b.Platforms = append(b.Platforms, rp)
			}
		}
	}
	if len(b.Platforms) == 0 {
		c.Close()
		return nil, errors.New("it offers no worker")
	}
	b.Native = b.Platforms[0]
	return b, nil
}

// plain is a builder's address without user, password and values of parameters, which may be
// tokens.
func plain(addr string) string {
	addr, query := parameters(addr)
	for i, p := range query {
		switch name, _, ok := strings.Cut(p, "="); {
		case !ok:
			query[i] = "***"
		case !slices.Contains(shownParameters, name):
			query[i] = name + "=***"
		}
	}
	addr = withoutUser(addr)
	if len(query) > 0 {
		addr += "?" + strings.Join(query, "&")
	}
	return addr
}

// shownParameters are those of BuildKit's connections that tell one builder from another.
var shownParameters = []string{"context", "namespace", "container", "nodename"}

// parameters separates an address from its parameters, and drops a fragment.
func parameters(addr string) (string, []string) {
	addr, _, _ = strings.Cut(addr, "#")
	addr, query, _ := strings.Cut(addr, "?")
	return addr, strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
}

func withoutUser(addr string) string {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return addr[strings.LastIndex(addr, "@")+1:]
	}
	host, path, below := strings.Cut(rest, "/")
	host = host[strings.LastIndex(host, "@")+1:]
	if below {
		host += "/" + path
	}
	return scheme + "://" + host
}

// plainError is an error with a text that shows a builder's address as plain does.
type plainError struct {
	addr string
	err  error
}

func (e *plainError) Error() string {
	text := e.err.Error()
	rest, query := parameters(e.addr)
	if _, fragment, ok := strings.Cut(e.addr, "#"); ok && fragment != "" {
		text = strings.ReplaceAll(text, fragment, "***")
	}
	for _, p := range query {
		name, value, ok := strings.Cut(p, "=")
		if slices.Contains(shownParameters, name) {
			continue
		}
		if !ok {
			value = name
		}
		if value != "" {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	if _, after, ok := strings.Cut(rest, "://"); ok {
		rest = after
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(host, "@"); i >= 0 {
		text = strings.ReplaceAll(text, host[:i], "***")
		_, password, _ := strings.Cut(host[:i], ":")
		if password != "" {
			text = strings.ReplaceAll(text, password, "***")
		}
	}
	return text
}

func (e *plainError) Unwrap() error { return e.err }

// ErrCannotStart says that our own daemon cannot run on this machine; the message contains the
// remedy.
var ErrCannotStart = errors.New("cannot start buildkitd")

// Check reports whether our own daemon could be started.
func Check(binary string) error {
	if os.Geteuid() != 0 {
		if err := state.CanBeRoot(); err != nil {
			return fmt.Errorf("%w: it needs root or a user namespace: %w; or run as root (sudo), or give --builder ADDR (or BUILDKIT_HOST) of a running one", ErrCannotStart, err)
		}
		return fmt.Errorf("%w: it needs root; run as root (sudo), or by assay, which becomes root in a user namespace", ErrCannotStart)
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return fmt.Errorf("%w: runc is not installed; run: apt-get install runc (or make deps)", ErrCannotStart)
	}
	_, err := Find(binary)
	return err
}

// Find returns the path of buildkitd: the given one, otherwise the one in the directory of this
// program, which is built from the same go.sum.
func Find(binary string) (string, error) {
	if binary != "" {
		if _, err := os.Stat(binary); err != nil {
			return "", fmt.Errorf("%w: %w", ErrCannotStart, err)
		}
		return binary, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "buildkitd")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	return "", fmt.Errorf("%w: there is no buildkitd next to %s; run: make build (or give --builder ADDR or ASSAY_BUILDKITD)", ErrCannotStart, self)
}

func start(ctx context.Context, o Options) (*Builder, error) {
	if err := Check(o.Binary); err != nil {
		return nil, err
	}
	binary, err := Find(o.Binary)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, err
	}
	lock, err := state.Lock(ctx, filepath.Join(o.StateDir, "assay.lock"), func() {
		if o.Log != nil {
			o.Log("another assay is using the builder in %s; waiting for it", o.StateDir)
		}
	})
	if err != nil {
		return nil, err
	}
	p, err := spawn(binary, o.StateDir, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	stop := func() error {
		defer lock.Close()
		p.stop()
		return state.Remove(filepath.Join(o.StateDir, "tmp")) // BuildKit leaves a directory behind for each file that a step had mounted
	}
	b, err := p.wait(ctx)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	b.stop, b.root, b.pid = stop, filepath.Join(o.StateDir, "root"), p.cmd.Process.Pid
	return b, nil
}

// process is a running daemon of our own.
type process struct {
	cmd  *exec.Cmd
	addr string
	log  *tailBuffer
	done chan struct{}
	err  error
}

const config = `# Written by assay for its own buildkitd.
[worker.oci]
  gc = true
  maxUsedSpace = "60GB"
  reservedSpace = "40GB"
  minFreeSpace = "5%"
[log]
  format = "text"
`

// spawn starts the daemon. The daemon inherits the lock of its state directory: if this program
// is killed, the next one waits until the daemon has exited too.
func spawn(binary, dir string, lock *os.File) (*process, error) {
	cfg := filepath.Join(dir, "buildkitd.toml")
	if err := os.WriteFile(cfg, []byte(config), 0o600); err != nil {
		return nil, err
	}
	// Remove what a killed daemon left there.
	tmp, root := filepath.Join(dir, "tmp"), filepath.Join(dir, "root")
	if err := errors.Join(state.Unmount(root), state.Remove(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return nil, err
	}
	sock := filepath.Join(dir, "buildkitd.sock")
	p := &process{addr: "unix://" + sock, log: &tailBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(binary, "--config", cfg, "--root", root, "--addr", p.addr,
		"--oci-worker=true", "--containerd-worker=false", "--otel-socket-path", filepath.Join(dir, "otel.sock"))
	p.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.ExtraFiles = []*os.File{lock}
	containers := "/run/runc" // where runc keeps them
	if state.InUserNamespace() {
		// /run is not ours. runc keeps them here, unless it takes the user for the machine's root.
		containers = filepath.Join(dir, "run")
		p.cmd.Env = append(p.cmd.Env, "XDG_RUNTIME_DIR="+containers, "USER=assay")
	}
	// Ctrl-C goes to assay, which cancels builds before it stops the daemon. If assay dies, the
	// daemon dies too, with its containers.
	wait, err := state.Start(p.cmd, containers)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannotStart, err)
	}
	go func() {
		p.err = wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) wait(ctx context.Context) (*Builder, error) {
	// It tries emulators of other architectures first, which took a minute on a machine with much else to do.
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("buildkitd did not answer within five minutes"))
	defer cancel()
	for {
		if b, err := dial(ctx, p.addr); err == nil {
			return b, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("%w: it ended (%v):\n%s", ErrCannotStart, p.err, p.log)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w\n%s", context.Cause(ctx), p.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// tailBuffer keeps the last lines of the daemon's log for error messages.
type tailBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - 64<<10; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(t.buf.String()), "\n")
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return strings.Join(lines, "\n")
}
