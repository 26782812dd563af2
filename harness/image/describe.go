package image

import (
	"bufio"
	"bytes"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// Describe describes where the suite runs: the image's operating system, and the machine.
func Describe(root rootfs.FS, spec *certificate.ImageSpec) certificate.Environment {
	e := certificate.Environment{
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		CPU: cpuModel(read(rootfs.FS{}, "/proc/cpuinfo")),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	os := osRelease(read(root, "/etc/os-release"))
	e.OS, e.OSID = os["PRETTY_NAME"], strings.TrimSpace(os["ID"]+" "+os["VERSION_ID"])
	if spec != nil {
		e.Target, e.Recipe = spec.Target, spec.Recipe
	}
	return e
}

// read returns up to 64 KiB of a file, or nothing on an error: a description may have gaps. Files
// in /proc report size 0, so ReadFile does not work for them.
func read(root rootfs.FS, name string) []byte {
	f, err := root.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, _ := f.Read(b)
	return bytes.ToValidUTF8(b[:n], nil)
}

// cpuModel finds the model in /proc/cpuinfo: "model name" on x86; on Arm, where the kernel has no
// name, the numbers of implementer and part.
func cpuModel(cpuinfo []byte) string {
	var implementer, part string
	for sc := bufio.NewScanner(bytes.NewReader(cpuinfo)); sc.Scan(); {
		key, value, _ := strings.Cut(sc.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			return value
		case "CPU implementer":
			implementer = value
		case "CPU part":
			part = value
		}
	}
	if implementer != "" {
		return "Arm implementer " + implementer + " part " + part
	}
	return ""
}

// osRelease reads os-release(5).
func osRelease(b []byte) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if v, err := unquote(value); ok && err == nil {
			vars[name] = v
		}
	}
	return vars
}
