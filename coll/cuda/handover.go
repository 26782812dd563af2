//go:build cuda && cgo

package cuda

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A handover gives a file descriptor to other processes of this host that know its name. The name
// is random, and that of an abstract Unix socket: processes must share a network namespace.
type handover struct {
	name   string
	l      *net.UnixListener
	fd     int
	served chan struct{} // closed: nobody gets it any more
}

// handoverName is the length of a name, which fits into an offer's Handle.
const handoverName = 32

// newHandover offers a descriptor, which it closes at the end.
func newHandover(fd int) (*handover, error) {
	var b [handoverName / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	h := &handover{name: hex.EncodeToString(b[:]), fd: fd, served: make(chan struct{})}
	var err error
	if h.l, err = net.ListenUnix("unix", address(h.name)); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	go h.serve()
	return h, nil
}

// handOver offers virtual memory to other processes, under a name that it writes to the offer.
func handOver(o *offer) (*handover, error) {
	fd, err := driver.Export(driver.Ptr(o.Addr))
	if err != nil {
		return nil, err
	}
	h, err := newHandover(fd)
	if err == nil {
		copy(o.Handle[:], h.name)
	}
	return h, err
}

// importVirtual maps virtual memory of another process.
func (d *device) importVirtual(ctx context.Context, o offer) (driver.Ptr, func() error, error) {
	fd, err := receive(ctx, string(o.Handle[:handoverName]))
	if err != nil {
		return 0, nil, err
	}
	v, err := driver.Import(fd, int(o.Total), d.info)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return 0, nil, err
	}
	return v.Ptr, v.Free, nil
}

func address(name string) *net.UnixAddr { return &net.UnixAddr{Name: "@assay-" + name, Net: "unix"} }

// serve gives the descriptor to each process that asks, if it is of the same user.
func (h *handover) serve() {
	defer close(h.served)
	for {
		c, err := h.l.AcceptUnix()
		if err != nil {
			return
		}
		if sameUser(c) {
			_ = c.SetWriteDeadline(time.Now().Add(handoverTime))
			_, _, _ = c.WriteMsgUnix([]byte{1}, unix.UnixRights(h.fd), nil) // whoever does not get it says so
		}
		_ = c.Close()
	}
}

// handoverTime limits how long one descriptor takes on its way.
const handoverTime = 10 * time.Second

func sameUser(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return false
	}
	return int(cred.Uid) == os.Getuid()
}

// close ends the offer.
func (h *handover) close() error {
	err := h.l.Close()
	<-h.served // otherwise another file might have the number by then
	return errors.Join(err, unix.Close(h.fd))
}

// receive returns the descriptor that another process offers.
func receive(ctx context.Context, name string) (fd int, err error) {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address(name).Name)
	if err != nil {
		return -1, fmt.Errorf("asking another process for its memory: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handoverTime))
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b[:], oob)
	if err != nil {
		return -1, fmt.Errorf("getting memory of another process: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errors.New("another process gives no memory: it is of another user"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("another process gives %d descriptors: %w", len(fds), err)
	}
	return fds[0], nil
}
