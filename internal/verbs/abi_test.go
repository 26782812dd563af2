package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sameNamed are the structures that are restated whole, and the members by
// which they are compared. Of the others (context, cq, qp) the machine's header
// has members behind those that are used.
var sameNamed = []string{
	"pd", "mr", "comp_channel", "wc", "sge", "send_wr", "recv_wr", "global_route", "ah_attr", "qp_cap", "qp_init_attr", "srq_attr", "srq_init_attr", "qp_attr",
	"device_attr", "port_attr", "async_event",
}

// TestABI compares abi.h with the header of the machine's libibverbs: every
// structure's size, and the place of every member that has the same name.
func TestABI(t *testing.T) {
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("no infiniband/verbs.h here (Debian's package is libibverbs-dev)")
	}
	text, err := os.ReadFile("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("#include <infiniband/verbs.h>\n#include \"abi.h\"\n")
	members := 0
	for _, m := range regexp.MustCompile(`(?ms)^struct vb_(\w+) \{$(.*?)^\};$`).FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		if contains(sameNamed, name) {
			same := "=="
			if name == "port_attr" {
				// rdma-core 50's is longer. The function that is called writes the members of the
				// first version only: its inline form has another name.
				same = ">="
			}
			fmt.Fprintf(&b, "_Static_assert(sizeof(struct ibv_%[1]s) %[2]s sizeof(struct vb_%[1]s), \"size of %[1]s\");\n", name, same)
		}
		for _, member := range membersOf(m[2]) {
			real := "struct ibv_" + name
			if name == "ops" {
				real = "struct ibv_context_ops"
			}
			if member == "imm_data" || member == "remote_srqn" || strings.HasPrefix(member, "before_") || member == "bind" || member == "rest" {
				continue
			}
			fmt.Fprintf(&b, "_Static_assert(offsetof(%s, %[2]s) == offsetof(struct vb_%[3]s, %[2]s), \"%[3]s.%[2]s\");\n", real, member, name)
			members++
		}
	}
	b.WriteString("_Static_assert(offsetof(struct ibv_send_wr, imm_data) == offsetof(struct vb_send_wr, imm_data), \"imm_data\");\n" +
		"_Static_assert(offsetof(struct ibv_send_wr, qp_type.xrc.remote_srqn) == offsetof(struct vb_send_wr, remote_srqn), \"srqn\");\n" +
		"_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.rkey) == offsetof(struct vb_send_wr, wr.atomic.rkey), \"atomic.rkey\");\n" +
		"_Static_assert(offsetof(struct ibv_send_wr, wr.ud.remote_qkey) == offsetof(struct vb_send_wr, wr.ud.remote_qkey), \"ud.remote_qkey\");\n" +
		"_Static_assert(sizeof(struct ibv_context_ops) == sizeof(struct vb_ops), \"size of ops\");\n")
	if members < 120 {
		t.Fatalf("only %d members were found in abi.h", members)
	}
	compiles(t, b.String())
}

// compiles checks a C program's static assertions.
func compiles(t *testing.T, text string) {
	t.Helper()
	c := filepath.Join(t.TempDir(), "abi.c")
	if err := os.WriteFile(c, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-std=gnu11", "-fsyntax-only", "-I.", c).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCMABI compares cm_abi.h with the header of the machine's librdmacm.
func TestCMABI(t *testing.T) {
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		t.Skip("no rdma/rdma_cma.h here (Debian's package is librdmacm-dev)")
	}
	text, err := os.ReadFile("cm_abi.h")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n#include \"cm_library.h\"\n")
	members := 0
	for _, m := range regexp.MustCompile(`(?ms)^struct cm_(\w+) \{$(.*?)^\};$`).FindAllStringSubmatch(string(text), -1) {
		theirs := "rdma_" + m[1]
		if m[1] == "id" || m[1] == "event" {
			theirs = "rdma_cm_" + m[1]
		}
		if m[1] != "id" { // members behind those that are used
			fmt.Fprintf(&b, "_Static_assert(sizeof(struct %s) == sizeof(struct cm_%[2]s), \"size of %[2]s\");\n", theirs, m[1])
		}
		for _, member := range membersOf(m[2]) {
			fmt.Fprintf(&b, "_Static_assert(offsetof(struct %s, %[2]s) == offsetof(struct cm_%[3]s, %[2]s), \"%[3]s.%[2]s\");\n", theirs, member, m[1])
			members++
		}
	}
	b.WriteString("_Static_assert(cm_tcp == RDMA_PS_TCP && cm_udp == RDMA_PS_UDP, \"port spaces\");\n")
	for number, name := range map[cmEventType]string{
		cmAddrResolved: "ADDR_RESOLVED", cmAddrError: "ADDR_ERROR", cmRouteResolved: "ROUTE_RESOLVED", cmRouteError: "ROUTE_ERROR", cmConnectRequest: "CONNECT_REQUEST",
		cmConnectError: "CONNECT_ERROR", cmUnreachable: "UNREACHABLE", cmRejected: "REJECTED", cmEstablished: "ESTABLISHED", cmDisconnected: "DISCONNECTED",
		cmDeviceRemoval: "DEVICE_REMOVAL", cmTimewaitExit: "TIMEWAIT_EXIT",
	} {
		fmt.Fprintf(&b, "_Static_assert(%d == RDMA_CM_EVENT_%s, \"%[2]s\");\n", number, name)
	}
	if members < 30 {
		t.Fatalf("only %d members were found in cm_abi.h", members)
	}
	compiles(t, b.String())
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// membersOf are the names that a structure's body declares at its top level.
func membersOf(body string) []string {
	body = regexp.MustCompile(`//[^\n]*`).ReplaceAllString(body, "")
	for nested := regexp.MustCompile(`\{[^{}]*\}`); nested.MatchString(body); {
		body = nested.ReplaceAllString(body, "")
	}
	var names []string
	for _, d := range strings.Split(body, ";") {
		if m := regexp.MustCompile(`\(\*(\w+)\)`).FindStringSubmatch(d); m != nil { // a function
			names = append(names, m[1])
			continue
		}
		for i, part := range strings.Split(d, ",") {
			fields := strings.Fields(strings.NewReplacer("*", " ").Replace(regexp.MustCompile(`\[.*\]`).ReplaceAllString(part, "")))
			if len(fields) == 0 || i == 0 && len(fields) < 2 {
				continue
			}
			names = append(names, fields[len(fields)-1])
		}
	}
	return names
}
