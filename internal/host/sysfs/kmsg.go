package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// kernelLogs are the files with the kernel's messages; the first readable one is used. They are the
// kernel's own buffer, which containers usually lack and kernel.dmesg_restrict hides from users,
// and what syslog, or a boot, wrote down.
var kernelLogs = []string{"/dev/kmsg", "/var/log/kern.log", "/var/log/messages", "/var/log/dmesg"}

// maxLog is how much is read from the end of a log.
const maxLog = 16 << 20

// A KernelLog contains kernel messages.
type KernelLog struct {
	File string // source of the text
	Text string
	// Written is when the file was written last: the time of its last line. It is zero for the kernel's own buffer.
	Written time.Time
}

// KernelLog reads the kernel's messages. If no log can be read, the error has the reason for each;
// it is fs.ErrPermission if a log exists but must not be read.
func (f FS) KernelLog() (KernelLog, error) {
	var errs []error
	for _, name := range kernelLogs {
		text, err := f.log(name)
		if err == nil && len(text) > 0 {
			log := KernelLog{File: name, Text: string(text)}
			if info, err := f.root.Stat(name); err == nil && info.Mode().IsRegular() {
				log.Written = info.ModTime()
			}
			return log, nil
		}
		if err == nil {
			err = fmt.Errorf("%s is empty: %w", name, fs.ErrNotExist) // in a container /dev/kmsg may link to /dev/null
		}
		errs = append(errs, err)
	}
	return KernelLog{}, errors.Join(errs...)
}

func (f FS) log(name string) ([]byte, error) {
	p, err := f.root.Path(name)
	if err != nil {
		return nil, err
	}
	// Without O_NONBLOCK a read of the buffer would wait for the next message.
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if end, err := unix.Seek(fd, 0, io.SeekEnd); err == nil && end > maxLog {
		_, err = unix.Seek(fd, end-maxLog, io.SeekStart)
		if err != nil {
			return nil, &fs.PathError{Op: "seek", Path: name, Err: err}
		}
	} else if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil && !errors.Is(err, unix.ESPIPE) && !errors.Is(err, unix.EINVAL) {
		return nil, &fs.PathError{Op: "seek", Path: name, Err: err}
	}
	var out bytes.Buffer
	record := make([]byte, 64<<10) // the buffer returns a whole message or an error
	for out.Len() < maxLog {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // overwritten during the read: continue with the next one
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return out.Bytes(), nil
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		default:
			out.Write(record[:n])
		}
	}
	return out.Bytes(), nil
}
