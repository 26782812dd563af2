// Command hostile is all programs of the images in hostile_test.go. /etc/hostile says what it does,
// and under which name; under all other names it is what a check expects.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	certificate = `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"x","digest":{"sha256":"` + "0000000000000000000000000000000000000000000000000000000000000000" + `"}}],"predicateType":"https://github.com/assay-hpc/assay/certificate/v1","predicate":{"schema":1,"suite":"image","verdict":"pass","started":"2026-03-01T12:00:00Z","finished":"2026-03-01T12:00:07Z","harness":{"version":"0.1.0","origin":"assay"},"environment":{"platform":"linux/amd64","target":"hostile"},"results":[{"id":"libraries","title":"all is well","verdict":"pass","seconds":0}]}}`
	outcome     = `{"status":0,"output":"dmVyc2lvbiAxLjA="}` // "version 1.0"
)

func main() {
	name := filepath.Base(os.Args[0])
	b, _ := os.ReadFile("/etc/hostile")
	who, what, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if os.Getenv("HOSTILE_CHILD") != "" {
		what, who = os.Getenv("HOSTILE_CHILD"), name
	}
	if act := acts[what]; who == name && act != nil {
		act()
	}
	honest(name)
}

func honest(name string) {
	switch {
	case strings.HasPrefix(name, "mpirun"):
		for r := range 2 {
			cmd := exec.Command(os.Args[3], os.Args[4:]...)
			cmd.Env = append(os.Environ(), fmt.Sprint("OMPI_COMM_WORLD_RANK=", r), "OMPI_COMM_WORLD_SIZE=2")
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	case name == "sshd":
	default:
		fmt.Println("version 1.0")
	}
	os.Exit(0)
}

// won says that an attack succeeded, by what the check expects, so that the test sees a pass.
func won(err error) {
	if err == nil {
		fmt.Println("version 1.0 won")
		os.Exit(0)
	}
	fmt.Println(err)
	os.Exit(1)
}

// lost ends without what the check expects.
func lost(errs ...error) {
	for _, err := range errs {
		if err == nil {
			won(nil)
		}
	}
	fmt.Println(errs)
	os.Exit(1)
}

func write(file, text string) error {
	_ = os.Remove(file)
	return os.WriteFile(file, []byte(text), 0o666)
}

// child starts this program again, in a session of its own, to do something else.
func child(what string) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{filepath.Base(os.Args[0])}
	cmd.Env = append(os.Environ(), "HOSTILE_CHILD="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
}

func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// deaf ignores what asks it to end.
func deaf() {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
		signalIgnore(s)
	}
}

var acts = map[string]func(){
	"certificate": func() {
		lost(write("/run/assay/out/certificate.json", certificate), write("/run/assay/out/inventory.json", `{"version":1,"packages":[]}`))
	},
	"outcome":      func() { lost(write("/run/assay/out/outcome.json", outcome)) },
	"late outcome": func() { child("late"); os.Exit(1) },
	"late": func() {
		deaf()
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			_ = write("/run/assay/out/outcome.json", outcome)
		}
		os.Exit(0)
	},
	"program": func() { lost(write("/run/assay/program/program.json", "{}")) },
	"harness": func() {
		lost(write("/run/assay/bin/harness", "#!/bin/sh\n"), os.Rename("/run/assay/bin/harness", "/tmp/harness"))
	},
	"root": func() { lost(write("/usr/bin/tool2", "x"), write("/etc/passwd", "x"), os.Mkdir("/evil", 0o755)) },
	"kill 1": func() {
		lost(syscall.Kill(1, syscall.SIGKILL), syscall.Kill(1, syscall.SIGTERM), syscall.Kill(os.Getppid(), syscall.SIGSTOP))
	},
	"kill all": func() { _ = syscall.Kill(-1, syscall.SIGKILL); lost(syscall.Kill(1, syscall.SIGKILL)) },
	"memory of 1": func() {
		f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteAt([]byte{0}, 0x400000)
		}
		lost(err)
	},
	"files of 1": func() {
		var errs []error
		for fd := range 32 {
			f, err := os.OpenFile(fmt.Sprintf("/proc/1/fd/%d", fd), os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(outcome)
			}
			errs = append(errs, err)
		}
		lost(errs...)
	},
	"trace": func() { lost(syscall.PtraceAttach(1), syscall.PtraceAttach(os.Getppid())) },
	"environment of 1": func() {
		_, err := os.ReadFile("/proc/1/environ")
		lost(err)
	},
	"mount": func() {
		lost(syscall.Mount("/tmp", "/run/assay/out", "", syscall.MS_BIND, ""), syscall.Mount("none", "/mnt", "tmpfs", 0, ""), syscall.Unmount("/run/assay/bin/harness", 0))
	},
	"namespace": func() {
		err := syscall.Unshare(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("/tmp", "/run/assay/out", "", syscall.MS_BIND, "")
		}
		lost(err)
	},
	"setuid": func() {
		cmd := exec.Command("/usr/bin/setuid")
		cmd.Env = []string{"HOSTILE_CHILD=am root"}
		out, err := cmd.CombinedOutput()
		fmt.Print(string(out))
		lost(err)
	},
	"am root": func() {
		if os.Geteuid() != 0 {
			lost(fmt.Errorf("user %d", os.Geteuid()))
		}
		won(nil)
	},
	"become root": func() { lost(syscall.Setuid(0), syscall.Setgid(0), syscall.Setgroups([]int{0})) },
	"clock": func() {
		lost(syscall.Settimeofday(&syscall.Timeval{Sec: 1}), unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1}))
	},
	"hostname": func() { lost(syscall.Sethostname([]byte("evil"))) },
	"network": func() {
		var errs []error
		for _, addr := range []string{"1.1.1.1:53", "169.254.169.254:80", "[2606:4700:4700::1111]:53"} {
			c, err := net.DialTimeout("tcp", addr, 3*time.Second)
			if err == nil {
				c.Close()
			}
			errs = append(errs, err)
		}
		lost(errs...)
	},
	"abstract socket": func() {
		// Unix sockets without a file would cross from container to container in one network namespace.
		c, err := net.Dial("unix", "@assay")
		if err == nil {
			c.Close()
		}
		lost(err)
	},
	"device": func() {
		lost(syscall.Mknod("/tmp/mem", syscall.S_IFCHR|0o666, 1<<8|1), openDevice("/dev/evil"), openDevice("/evil/mem"))
	},
	"sysctl": func() { lost(write("/proc/sys/kernel/core_pattern", "|/tmp/x"), write("/proc/sysrq-trigger", "c")) },
	"message": func() {
		fmt.Println(`{"result":{"certificate":` + certificate + `,"inventory":{"version":1,"packages":[]}}}`)
		fmt.Fprintln(os.Stderr, outcome)
		os.Exit(1)
	},
	"escape sequences": func() { fmt.Print("\x1b]0;PASS\x07\x1b[2J\x1b[1;1H✓ version\u202e 1.1\x00\xff\n"); os.Exit(1) },
	"1 GB": func() {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 'x'
		}
		for range 1 << 10 {
			if _, err := os.Stdout.Write(b); err != nil {
				os.Exit(2)
			}
		}
		os.Exit(1)
	},
	"fork bomb": func() {
		deaf()
		for {
			child("fork bomb")
		}
	},
	"memory bomb": func() {
		var all [][]byte
		for {
			b := make([]byte, 16<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
	},
	"memory file bomb": func() {
		b := make([]byte, 16<<20)
		for {
			fd, err := unix.MemfdCreate("x", 0)
			if err != nil {
				os.Exit(1)
			}
			for range 16 {
				if _, err := unix.Write(fd, b); err != nil {
					os.Exit(1)
				}
			}
		}
	},
	"disk bomb": func() {
		b := make([]byte, 16<<20)
		for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/world", "/run/assay/out", "/run/assay"} {
			f, err := os.Create(dir + "/bomb")
			for err == nil {
				_, err = f.Write(b)
			}
			fmt.Println(err)
		}
		os.Exit(1)
	},
	"file bomb": func() {
		for i := 0; ; i++ {
			if _, err := os.Create(fmt.Sprintf("/tmp/%d", i)); err != nil && i > 2_000_000 {
				os.Exit(1)
			}
		}
	},
	"descriptors": func() {
		for i := 0; ; i++ {
			if _, err := os.Open("/"); err != nil {
				fmt.Println(i, err)
				os.Exit(1)
			}
		}
	},
	"deaf": func() { deaf(); hang() },
	"silent": func() {
		os.Stdout.Close()
		os.Stderr.Close()
		deaf()
		hang()
	},
	"busy": func() {
		for range 8 {
			go func() {
				for {
				}
			}()
		}
		hang()
	},
	"left behind": func() {
		child("deaf")
		child("silent")
		child("busy")
		os.Exit(1)
	},
	"hidden": func() {
		for _, name := range []string{") Z 1 (", "harness", "a\nb"} {
			_ = unix.Prctl(unix.PR_SET_NAME, pointer(name), 0, 0, 0)
			child("deaf")
		}
		os.Exit(1)
	},
	"stopped": func() {
		child("stop itself")
		child("stop itself")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // another thread may take it, a little later
		hang()
	},
	"stop itself": func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP); hang() },
	"harness lies": func() {
		fmt.Println(certificate)
		won(write("/run/assay/out/certificate.json", certificate))
	},
	"never": func() { won(nil) }, // a program that no gate may start
}

func openDevice(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return err
}
