package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	k8sjson "sigs.k8s.io/json"
)

// pods checks all pods in an object, of whatever kind: each has a list of containers.
func (s *places) pods(v any, at string, layoutOf func(path string) layout) {
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			s.pods(one, fmt.Sprintf("%s[%d]", at, i), layoutOf)
		}
	case map[string]any:
		if list, ok := v["containers"].([]any); ok && len(list) > 0 {
			var p corev1.PodSpec
			raw, err := json.Marshal(v)
			if err == nil {
				var strange []error
				strange, err = k8sjson.UnmarshalStrict(raw, &p)
				for _, e := range strange {
					if s.strict { // the operator's decoder has reported it
						break
					}
					s.report(LevelWarning, strings.Trim(at+"."+fieldOf(e), "."), "there is no such field, or it is there twice", "look at the indentation; kubectl explain pod.spec names all fields")
				}
			}
			if err != nil {
				s.skip(err)
				return
			}
			s.pod(p, at, layoutOf(at))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			s.pods(v[name], strings.Trim(at+"."+name, "."), layoutOf)
		}
	}
}

func (s *places) pod(p corev1.PodSpec, at string, a layout) {
	s.names(p, at)
	if own := p.DNSPolicy == "" || p.DNSPolicy == corev1.DNSClusterFirst; p.HostNetwork && own && a.nodes > 1 && !strings.Contains(at, "mpiReplicaSpecs.Worker") {
		s.report(LevelWarning, at+".hostNetwork", fmt.Sprintf("the pod finds none of the other %d by their names: with hostNetwork it asks the node's name server alone", a.nodes-1), "write dnsPolicy: ClusterFirstWithHostNet")
	}
	for i, c := range p.Containers {
		at := fmt.Sprintf("%s.containers[%d]", at, i)
		n := gpus(c)
		shm := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == "/dev/shm" })
		if shm >= 0 {
			s.shm(p, c.VolumeMounts[shm].Name, strings.TrimSuffix(at, fmt.Sprintf(".containers[%d]", i)))
		} else if n > 1 && !p.HostIPC {
			s.report(LevelWarning, at+".volumeMounts", fmt.Sprintf("nothing is mounted at /dev/shm for %d GPUs", n), "mount an emptyDir in memory; NCCL's ranks of one node may need more than the 64 MB that a container has")
		}
		s.devices(c, at)
		s.pinning(p, c, at)
		if !a.hosts {
			a.gpus, a.every = n, true
		}
		s.judge(c, at, a)
	}
}

// names checks that what a pod's containers name is there.
func (s *places) names(p corev1.PodSpec, at string) {
	if s.batch && p.RestartPolicy == corev1.RestartPolicyAlways {
		s.report(LevelError, at+".restartPolicy", "the pods of a Job may not have Always, and are refused", "write Never or OnFailure")
	}
	for i, c := range p.Containers {
		at := fmt.Sprintf("%s.containers[%d]", at, i)
		for k, m := range c.VolumeMounts {
			if !s.templates && !slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				s.report(LevelError, fmt.Sprintf("%s.volumeMounts[%d].name", at, k), fmt.Sprintf("the pod has no volume %q, and is refused", m.Name), "add it to the pod's volumes, beside containers")
			}
		}
		for k, r := range c.Resources.Claims {
			if !slices.ContainsFunc(p.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == r.Name }) {
				s.report(LevelError, fmt.Sprintf("%s.resources.claims[%d].name", at, k), fmt.Sprintf("the pod has no resource claim %q, and is refused", r.Name), "add it to the pod's resourceClaims, beside containers")
			}
		}
	}
}

// shm checks the volume that is mounted at /dev/shm.
func (s *places) shm(p corev1.PodSpec, name, at string) {
	i := slices.IndexFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 || p.Volumes[i].EmptyDir == nil {
		return
	}
	at += fmt.Sprintf(".volumes[%d].emptyDir", i)
	switch v := p.Volumes[i].EmptyDir; {
	case v.Medium == "":
		s.report(LevelWarning, at, "it is mounted at /dev/shm, but lies on the node's disk", "write medium: Memory")
	case v.Medium != corev1.StorageMediumMemory && !strings.HasPrefix(string(v.Medium), "HugePages"):
		s.report(LevelError, at+".medium", fmt.Sprintf("there is no medium %q, and the pods are refused", v.Medium), "write Memory")
	case v.SizeLimit != nil && v.SizeLimit.Value() < 64<<20:
		s.report(LevelWarning, at+".sizeLimit", fmt.Sprintf("%s at /dev/shm is less than the 64 MB that a container has without it", v.SizeLimit), "are gigabytes meant, as in 16Gi?")
	}
}

// judge checks what a container starts, and its variables.
func (s *places) judge(c corev1.Container, at string, a layout) {
	env := s.environment(c, at)
	vars := map[string]string{}
	for _, v := range env {
		if !strings.Contains(v.value, "$(") {
			vars[v.name] = v.value
		}
		if v.name == "LD_LIBRARY_PATH" && regexp.MustCompile(`\$\{?LD_LIBRARY_PATH`).MatchString(v.value) {
			s.c.add(LevelWarning, v.line, 0, fmt.Sprintf("%s.env[%s]", at, v.name), "Kubernetes does not expand $LD_LIBRARY_PATH, so the image's own value is lost", "write the whole path, or set it in a shell")
		}
	}
	argv := slices.Concat(c.Command, c.Args)
	command, from := at+".command", 0
	if len(argv) > 0 {
		if from = scriptOf(argv); from >= len(c.Command) {
			command = fmt.Sprintf("%s.args[%d]", at, from-len(c.Command))
		} else {
			command = fmt.Sprintf("%s.command[%d]", at, from)
		}
	}
	line, _ := s.at(command)
	j := &judge{layout: a, shell: containerShell(argv, vars), variable: s.c.variable}
	j.env = append(env, a.env...)
	for i := range j.exports {
		j.exports[i].line += line - 1
	}
	for i := range j.commands {
		j.commands[i].line += line - 1
	}
	j.report = func(line int, level, field, message, remedy string) {
		where := command
		if field != "" {
			where = fmt.Sprintf("%s.env[%s]", at, field)
		}
		s.c.add(level, line, 0, where, message, remedy)
	}
	j.judge()
}

// scriptOf returns the index of a shell's command string in a command, 0 if there is none.
func scriptOf(argv []string) int {
	for i := 1; i < len(argv) && starter(argv, i-1) == ""; i++ {
		if shellFlag.MatchString(argv[i-1]) {
			return i
		}
	}
	return 0
}

// containerShell returns what a container's command does.
func containerShell(argv []string, vars map[string]string) *shell {
	if len(argv) == 0 {
		return &shell{}
	}
	i := scriptOf(argv)
	if i == 0 {
		return &shell{commands: []command{{1, argv}}}
	}
	sh := parseShell(argv[i], vars)
	if i+1 < len(argv) { // what the script gets as "$@"
		sh.commands = append(sh.commands, command{1, append([]string{"$@"}, argv[i+1:]...)})
	}
	return sh
}

// environment returns the variables that a container gets with constant values.
func (s *places) environment(c corev1.Container, at string) []variable {
	var out []variable
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			line, _ := s.at(fmt.Sprintf("%s.env[%d]", at, i))
			out = append(out, variable{name: e.Name, value: e.Value, line: line})
		}
	}
	return out
}

// devices checks amounts of what can be neither divided nor overcommitted.
func (s *places) devices(c corev1.Container, at string) {
	for _, list := range []string{"requests", "limits"} {
		amounts := map[string]corev1.ResourceList{"requests": c.Resources.Requests, "limits": c.Resources.Limits}[list]
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			n := amounts[name]
			where := fmt.Sprintf("%s.resources.%s[%s]", at, list, name)
			limit, limited := c.Resources.Limits[name]
			switch {
			case !strings.Contains(string(name), "/"):
			case slices.Contains([]string{"nvidia.com/gpus", "amd.com/gpus", "nvidia.com/GPU", "vpc.amazonaws.com/efas"}, string(name)):
				s.report(LevelError, where, "no device plugin offers this name, so the pods wait for ever", "write "+strings.TrimSuffix(strings.ToLower(string(name)), "s"))
			case n.MilliValue()%1000 != 0:
				s.report(LevelError, where, fmt.Sprintf("%s is no whole number, so the pods are refused", &n), "write a whole number: Kubernetes divides no device, but a device plugin can offer one several times")
			case list == "limits" || limited && n.Cmp(limit) == 0:
			case !limited:
				s.report(LevelError, where, fmt.Sprintf("the request %s has no limit, so the pods are refused", &n), "write limits with the same number")
			default:
				s.report(LevelError, where, fmt.Sprintf("the request %s differs from the limit %s, so the pods are refused", &n, &limit), "write limits with the same number")
			}
		}
	}
}

// gpus returns the number of GPUs of a container.
func gpus(c corev1.Container) int {
	for _, name := range []corev1.ResourceName{gpuResource, "amd.com/gpu"} {
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			if q, ok := list[name]; ok {
				return int(q.Value())
			}
		}
	}
	return 0
}

// adapters matches resources that are RDMA adapters, but not EFA's: its nodes let all
// containers pin memory.
var adapters = regexp.MustCompile(`rdma|roce|mlnx|infiniband|hostdev|/ib$`)

// pinning checks that a container with RDMA adapters can pin memory.
func (s *places) pinning(p corev1.PodSpec, c corev1.Container, at string) {
	adapter := ""
	for name := range c.Resources.Limits {
		if adapters.MatchString(string(name)) {
			adapter = string(name)
		}
	}
	sc, pod := c.SecurityContext, p.SecurityContext
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	privileged := sc.Privileged != nil && *sc.Privileged
	lock := sc.Capabilities != nil && slices.ContainsFunc(sc.Capabilities.Add, func(c corev1.Capability) bool {
		return c == "IPC_LOCK" || c == "CAP_IPC_LOCK" || c == "ALL"
	})
	user, never := sc.RunAsUser, sc.RunAsNonRoot
	if user == nil {
		user = pod.RunAsUser
	}
	if never == nil {
		never = pod.RunAsNonRoot
	}
	root := user != nil && *user == 0 || user == nil && (never == nil || !*never)
	switch at += ".securityContext"; {
	case !root && (lock || adapter != ""):
		s.report(LevelWarning, at, "IPC_LOCK has no effect for a user other than root, and RDMA pins memory", "run as root, give the program the capability (setcap cap_ipc_lock=ep), or let the nodes' runtime permit it (LimitMEMLOCK=infinity)")
	case adapter != "" && !privileged && !lock:
		s.report(LevelWarning, at, "it asks for "+adapter+", but has not the capability IPC_LOCK", "add it, unless the nodes' runtime lets containers pin memory (LimitMEMLOCK=infinity)")
	}
}
