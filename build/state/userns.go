package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	sys "github.com/moby/sys/user"
	"github.com/moby/sys/userns"
)

// ErrNoUserNamespace says that a user cannot be root of a user namespace here; the message
// contains the remedy.
var ErrNoUserNamespace = errors.New("no user namespace")

// InUserNamespace reports whether this program runs in a user namespace, as below AsRoot.
func InUserNamespace() bool { return userns.RunningInUserNS() }

// CanBeRoot returns nil if this program is root or could be by AsRoot.
func CanBeRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	_, err := AsRoot(context.Background(), "true")
	return err
}

// ids is the number of user IDs and group IDs that a namespace needs: those of Debian's and
// Ubuntu's packages, and 65534 for nobody.
const ids = 65536

// become runs as the first process of the user namespace. Until the line on descriptor 3, no ID is
// mapped; what is executed after it is root. It proves what Start will need, with the reason on
// descriptor 4. The death signal is set after the last change of rights, which clears it; if the
// caller has ended before, the signal never comes.
const become = `read -r mapped <&3
unshare --mount --pid --fork --mount-proc true 2>&4
exec 3<&- 4>&- setpriv --pdeathsig KILL /bin/sh -c '[ "$PPID" = "$1" ] && shift && exec "$@"' sh "$@"`

// AsRoot runs a program as root in a new user namespace, which contains the calling user as root
// and the user's ranges in /etc/subuid and /etc/subgid as other users. The program can mount, use
// chroot, start containers and own files as any of them, but has no right that the user does not
// have. It gets this program's input and output, SIGTERM when ctx ends, and dies with this program.
// AsRoot returns its exit status, or an error that wraps ErrNoUserNamespace if it was not run.
func AsRoot(ctx context.Context, argv ...string) (status int, err error) {
	no := func(format string, a ...any) (int, error) {
		return 0, fmt.Errorf("%w: %w", ErrNoUserNamespace, fmt.Errorf(format, a...))
	}
	me, err := user.Current()
	if err != nil {
		return no("%w", err)
	}
	uids, err := subIDs("/etc/subuid", me)
	if err != nil {
		return no("%w", err)
	}
	gids, err := subIDs("/etc/subgid", me)
	if err != nil {
		return no("%w", err)
	}
	for _, tool := range []string{"newuidmap", "newgidmap", "unshare", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			return no("%s is not on PATH; as root: apt-get install uidmap util-linux", tool)
		}
	}
	mapped, told, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer told.Close()
	reasons, reason, err := os.Pipe()
	if err != nil {
		mapped.Close()
		return 0, err
	}
	defer reasons.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-euc", become, "sh", strconv.Itoa(os.Getpid())}, argv...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{mapped, reason}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	runtime.LockOSThread() // the death signal comes when the starting thread ends
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	mapped.Close()
	reason.Close()
	if err != nil {
		return no("the kernel refuses it: %w; %s", err, allow())
	}
	abort := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for _, m := range []struct {
		tool   string
		id     int
		ranges []sys.SubID
	}{{"newuidmap", os.Geteuid(), uids}, {"newgidmap", os.Getegid(), gids}} {
		if out, err := exec.Command(m.tool, idMap(cmd.Process.Pid, m.id, m.ranges)...).CombinedOutput(); err != nil {
			abort()
			return no("%s: %w: %s (it must be setuid root; if it is not: apt-get install --reinstall uidmap)", m.tool, err, strings.TrimSpace(string(out)))
		}
	}
	if _, err := io.WriteString(told, "\n"); err != nil {
		abort()
		return 0, err
	}
	text, err := io.ReadAll(reasons) // its end: the program is being executed, or never will be
	if err == nil && len(text) > 0 {
		abort()
		return no("no mounts or processes of its own: %s; %s", strings.TrimSpace(string(text)), allow())
	}
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return 0, err
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// allow says how to permit user namespaces, from the kernel's settings.
func allow() string {
	for _, s := range []struct{ file, forbids, remedy string }{
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces (Ubuntu 23.10 and later); as root, write " +
			"\"abi <abi/4.0>, include <tunables/global> profile assay " + self() + " flags=(unconfined) { userns, }\" into /etc/apparmor.d/assay and run: " +
			"apparmor_parser -r /etc/apparmor.d/assay (or for all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "as root: sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "as root: sysctl -w user.max_user_namespaces=10000"},
	} {
		if text, err := os.ReadFile(s.file); err == nil && strings.TrimSpace(string(text)) == s.forbids {
			return s.remedy
		}
	}
	return "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
}

func self() string {
	file, err := os.Executable()
	if err != nil {
		return "/usr/local/bin/assay"
	}
	return file
}

// subIDs returns the ranges of IDs that a file such as /etc/subuid gives to a user.
func subIDs(file string, u *user.User) ([]sys.SubID, error) {
	ranges, err := sys.ParseSubIDFileFilter(file, func(s sys.SubID) bool { return s.Name == u.Username || s.Name == u.Uid })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var sum int64
	for _, r := range ranges {
		sum += r.Count
	}
	if sum < ids-1 { // and the user as 0
		option := map[string]string{"/etc/subuid": "--add-subuids", "/etc/subgid": "--add-subgids"}[file]
		return nil, fmt.Errorf("%s gives the user %s %d IDs, %d are needed; as root, with a range that no other user has: usermod %s 100000-165535 %[2]s",
			file, cmp.Or(u.Username, u.Uid), sum, ids, option)
	}
	return ranges, nil
}

// idMap returns the arguments of newuidmap or newgidmap: id is 0 in the namespace, and the ranges
// are the IDs from 1 on.
func idMap(pid, id int, ranges []sys.SubID) []string {
	args := []string{strconv.Itoa(pid), "0", strconv.Itoa(id), "1"}
	at := int64(1)
	for _, r := range ranges {
		args = append(args, strconv.FormatInt(at, 10), strconv.FormatInt(r.SubID, 10), strconv.FormatInt(r.Count, 10))
		at += r.Count
	}
	return args
}
