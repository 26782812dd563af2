package assay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A workflow is what audits read of a workflow of GitHub, or of an action made of steps.
type workflow struct {
	Name        string
	On          yaml.Node
	Permissions yaml.Node
	Concurrency yaml.Node
	Env         variables
	Jobs        map[string]*workflowJob
	Runs        struct{ Steps []workflowStep } // of an action
	text        string
}

type workflowJob struct {
	If                  string
	Permissions         yaml.Node
	Env                 variables
	RunsOn              yaml.Node `yaml:"runs-on"`
	Container, Services yaml.Node
	Secrets             yaml.Node
	Uses                string
	Steps               []workflowStep
	Timeout             yaml.Node `yaml:"timeout-minutes"`
}

type workflowStep struct {
	If, Uses, Run, Shell string
	Env                  variables
	With                 variables
}

// variables are a mapping, or an expression that makes one, which has no name.
type variables map[string]string

func (v *variables) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*v = variables{"": n.Value}
		return nil
	}
	return n.Decode((*map[string]string)(v))
}

// caching are actions that restore a cache, unless an input has this value ("": always).
var caching = map[string]string{
	"actions/cache": "", "actions/cache/restore": "", "Swatinem/rust-cache": "", "actions/setup-go": "cache: false", "actions/setup-node": "package-manager-cache: false",
	"astral-sh/setup-uv": "enable-cache: false", "docker/setup-buildx-action": "cache-binary: false", "golangci/golangci-lint-action": "skip-cache: true",
	"oven-sh/setup-bun": "no-cache: true",
}

// cachingIfAsked are actions that restore a cache if an input is set.
var cachingIfAsked = map[string]string{"actions/setup-python": "cache", "ruby/setup-ruby": "bundler-cache"}

// restores reports whether a step restores a cache.
func restores(s workflowStep) bool {
	if input, ok := cachingIfAsked[uses(s)]; ok {
		return s.With[input] != "" && s.With[input] != "false"
	}
	unless, caches := caching[uses(s)]
	input, value, _ := strings.Cut(unless, ": ")
	return caches && (unless == "" || s.With[input] != value)
}

var (
	expression = regexp.MustCompile(`(?s)\$\{\{(.*?)\}\}`)
	secretRef  = regexp.MustCompile(`\bsecrets\s*(?:\.\s*(\w+)|\[)`)
	// What nobody outside of the repository can choose the text of.
	harmless = regexp.MustCompile(`(?i)^\s*(github\.(sha|run_id|run_number|run_attempt|workspace|action_path|actor_id|repository_id|event_name|server_url|api_url|token|event\.(number|pull_request\.number|issue\.number))|runner\.(os|arch|temp|tool_cache)|strategy\.[\w-]+|job\.status|true|false|\d+|'[^']*')\s*$`)
	written  = regexp.MustCompile(`>>?\s*"?\$\{?(GITHUB_ENV|GITHUB_PATH)\b|(?i)out-file.*\benv:GITHUB_(ENV|PATH)\b`)
)

// workflowAudits look for what an attacker can use, by zizmor's names: it documents each. They
// do not ask a server, so what needs one (whether a commit belongs to its tag, known
// vulnerabilities of actions) is left out. A result begins with the place.
var workflowAudits = map[string]func(w *workflow) []string{
	"artipacked": func(w *workflow) (found []string) {
		for at, s := range w.steps() {
			job := w.Jobs[strings.Split(at, " ")[0]]
			pushes := job != nil && slices.ContainsFunc(job.Steps, func(s workflowStep) bool { return strings.Contains(s.Run, "git push") })
			if uses(s) == "actions/checkout" && s.With["persist-credentials"] != "false" && !pushes {
				found = append(found, at+": the token stays on the disk; set persist-credentials: false")
			}
		}
		return found
	},
	"bot-conditions": func(w *workflow) (found []string) {
		for at, cond := range w.conditions() {
			if regexp.MustCompile(`github\.(actor|triggering_actor)\b.*\[bot\]|\[bot\].*github\.(actor|triggering_actor)\b`).MatchString(cond) {
				found = append(found, at+": github.actor is who acted last; compare github.event.pull_request.user.login")
			}
		}
		return found
	},
	"cache-poisoning": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			publishes := w.releases() || slices.ContainsFunc(job.Steps, func(s workflowStep) bool { return len(secretsOf(s)) > 0 })
			for i, s := range job.Steps {
				if publishes && restores(s) {
					found = append(found, fmt.Sprintf("%s step %d: %s restores a cache, which others may have written, where there is a key or a release", name, i+1, uses(s)))
				}
			}
		}
		return found
	},
	"concurrency-limits": func(w *workflow) []string {
		if w.Concurrency.IsZero() && len(w.Jobs) > 0 && !w.on("workflow_call") {
			return []string{"workflow: no concurrency: a second run overtakes the first"}
		}
		return nil
	},
	"dangerous-triggers": func(w *workflow) (found []string) {
		for _, on := range []string{"pull_request_target", "workflow_run"} {
			if w.on(on) {
				found = append(found, "on: "+on+" runs with this repository's secrets on what others wrote")
			}
		}
		return found
	},
	"excessive-permissions": func(w *workflow) (found []string) {
		if len(w.Jobs) == 0 {
			return nil
		}
		if w.Permissions.IsZero() || w.Permissions.Value != "" || strings.Contains(nodeText(&w.Permissions), "write") {
			found = append(found, "workflow: permissions are not {}, with those of each job beside it")
		}
		for name, job := range w.Jobs {
			if job.Permissions.IsZero() && nodeText(&w.Permissions) != "{}\n" || job.Permissions.Value == "write-all" {
				found = append(found, name+": it has no permissions of its own")
			}
		}
		return found
	},
	"github-env": func(w *workflow) (found []string) {
		for at, s := range w.steps() {
			if written.MatchString(s.Run) && (w.on("pull_request_target") || w.on("workflow_run") || len(w.Jobs) == 0) {
				found = append(found, at+": what others choose may become a variable of later steps")
			}
		}
		return found
	},
	"hardcoded-container-credentials": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			for _, n := range []*yaml.Node{&job.Container, &job.Services} {
				if m := regexp.MustCompile(`password: *([^\s]+)`).FindStringSubmatch(nodeText(n)); m != nil && !strings.Contains(m[1], "${{") {
					found = append(found, name+": a password in the file")
				}
			}
		}
		return found
	},
	"insecure-commands": func(w *workflow) (found []string) {
		for at, env := range w.envs() {
			if v := env["ACTIONS_ALLOW_UNSECURE_COMMANDS"]; v != "" && v != "false" {
				found = append(found, at+": ACTIONS_ALLOW_UNSECURE_COMMANDS")
			}
		}
		return found
	},
	"overprovisioned-secrets": func(w *workflow) (found []string) {
		for _, m := range expression.FindAllStringSubmatch(w.text, -1) {
			if all := regexp.MustCompile(`(?i)toJSON\(\s*secrets\s*\)|secrets\s*\[`); all.MatchString(m[1]) {
				found = append(found, "expression "+strings.TrimSpace(m[1])+": all secrets")
			}
		}
		return found
	},
	"secrets-inherit": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			if job.Secrets.Value == "inherit" {
				found = append(found, name+": every secret goes to "+job.Uses)
			}
		}
		return found
	},
	// Of zizmor's, but by steps: no environment is protected where one repository has one key.
	"secrets-outside-env": func(w *workflow) (found []string) {
		for at, env := range w.envs() {
			if strings.Contains(at, " step ") {
				continue
			}
			for name, v := range env {
				if secretRef.MatchString(v) {
					found = append(found, at+": "+name+" is in the environment of every step; give it to the one that needs it")
				}
			}
		}
		return found
	},
	"self-hosted-runner": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			if strings.Contains(nodeText(&job.RunsOn), "self-hosted") {
				found = append(found, name+": a runner of one's own keeps what a job left")
			}
		}
		return found
	},
	"template-injection": func(w *workflow) (found []string) {
		for at, s := range w.steps() {
			scripts := s.Run
			if uses(s) == "actions/github-script" {
				scripts += s.With["script"]
			}
			for _, m := range expression.FindAllStringSubmatch(scripts, -1) {
				if !harmless.MatchString(m[1]) {
					found = append(found, at+": ${{"+m[1]+"}} becomes code of the script; give it by env")
				}
			}
		}
		return found
	},
	"undocumented-permissions": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			for i := 0; i+1 < len(job.Permissions.Content); i += 2 {
				k, v := job.Permissions.Content[i], job.Permissions.Content[i+1]
				if v.Value == "write" && v.LineComment == "" && k.HeadComment == "" && job.Uses == "" {
					found = append(found, fmt.Sprintf("%s: line %d: %s: write without a comment that says what for", name, k.Line, k.Value))
				}
			}
		}
		return found
	},
	"unpinned-images": func(w *workflow) (found []string) {
		for name, job := range w.Jobs {
			for _, n := range []*yaml.Node{&job.Container, &job.Services} {
				for _, image := range images(n) {
					if !strings.Contains(image, "@sha256:") && !strings.Contains(image, "${{") {
						found = append(found, name+": the image "+image+" has no digest")
					}
				}
			}
		}
		return found
	},
	"unredacted-secrets": func(w *workflow) (found []string) {
		for _, m := range expression.FindAllStringSubmatch(w.text, -1) {
			if regexp.MustCompile(`(?i)fromJSON\(\s*secrets\b`).MatchString(m[1]) {
				found = append(found, "expression "+strings.TrimSpace(m[1])+": logs show its parts")
			}
		}
		return found
	},
	"unsound-condition": func(w *workflow) (found []string) {
		for at, cond := range w.conditions() {
			if t := strings.TrimSpace(cond); strings.Contains(t, "${{") && (!strings.HasPrefix(t, "${{") || !strings.HasSuffix(t, "}}") || strings.HasSuffix(cond, "\n")) {
				found = append(found, at+": a text with an expression inside is always true")
			}
		}
		return found
	},
	"unsound-contains": func(w *workflow) (found []string) {
		for at, cond := range w.conditions() {
			if regexp.MustCompile(`contains\(\s*'[^']*'\s*,\s*(github\.(ref|ref_name|head_ref|base_ref|actor|triggering_actor)|env\.|inputs\.)`).MatchString(cond) {
				found = append(found, at+": contains of a text takes parts of its words")
			}
		}
		return found
	},
}

// TestWorkflowAudits: no audit finds anything in the workflows and actions.
func TestWorkflowAudits(t *testing.T) {
	var files []string
	for _, pattern := range []string{".github/workflows/*.yml", "action/*.yml", "action/*/*.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 7 {
		t.Errorf("%d files", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range audit(t, file, string(text)) {
			t.Errorf("%s: %s", file, f)
		}
	}
}

// TestWorkflowAuditsBite: each audit finds what it is for.
func TestWorkflowAuditsBite(t *testing.T) {
	bad := map[string]string{
		"artipacked":                      "jobs: {a: {steps: [{uses: actions/checkout@v5}]}}",
		"bot-conditions":                  "jobs: {a: {if: \"github.actor == 'dependabot[bot]'\"}}",
		"cache-poisoning":                 "on: release\njobs: {a: {steps: [{uses: actions/setup-go@v6}]}}",
		"concurrency-limits":              "jobs: {a: {}}",
		"dangerous-triggers":              "on: [pull_request_target]",
		"excessive-permissions":           "permissions: read-all\njobs: {a: {}}",
		"github-env":                      "on: {workflow_run: }\njobs: {a: {steps: [{run: 'echo A=$B >> \"$GITHUB_ENV\"'}]}}",
		"hardcoded-container-credentials": "jobs: {a: {container: {image: x, credentials: {password: hunter2}}}}",
		"insecure-commands":               "env: {ACTIONS_ALLOW_UNSECURE_COMMANDS: true}",
		"overprovisioned-secrets":         "env: {A: '${{ toJSON(secrets) }}'}",
		"secrets-inherit":                 "jobs: {a: {uses: ./b.yml, secrets: inherit}}",
		"secrets-outside-env":             "jobs: {a: {env: {KEY: '${{ secrets.KEY }}'}}}",
		"self-hosted-runner":              "jobs: {a: {runs-on: [self-hosted, linux]}}",
		"template-injection":              "jobs: {a: {steps: [{run: 'echo ${{ github.head_ref }}'}]}}",
		"undocumented-permissions":        "jobs: {a: {permissions: {contents: write}}}",
		"unpinned-images":                 "jobs: {a: {services: {db: {image: 'postgres:18'}}}}",
		"unredacted-secrets":              "env: {A: '${{ fromJSON(secrets.ALL).key }}'}",
		"unsound-condition":               "jobs: {a: {if: '${{ false }} && true'}}",
		"unsound-contains":                "jobs: {a: {if: \"contains('refs/heads/main', github.ref)\"}}",
	}
	for name := range workflowAudits {
		if !slices.ContainsFunc(audit(t, name, bad[name]), func(f string) bool { return strings.HasPrefix(f, name+": ") }) {
			t.Errorf("%s finds nothing in %q", name, bad[name])
		}
	}
}

// audit returns what all audits find in a file, as AUDIT: PLACE: TEXT.
func audit(t *testing.T, file, text string) (found []string) {
	t.Helper()
	w := workflow{text: text}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for name, run := range workflowAudits {
		for _, f := range run(&w) {
			found = append(found, name+": "+f)
		}
	}
	slices.Sort(found)
	return found
}

// steps returns all steps, by "JOB step N".
func (w *workflow) steps() map[string]workflowStep {
	all := map[string]workflowStep{}
	for name, job := range w.Jobs {
		for i, s := range job.Steps {
			all[fmt.Sprintf("%s step %d", name, i+1)] = s
		}
	}
	for i, s := range w.Runs.Steps {
		all[fmt.Sprintf("action step %d", i+1)] = s
	}
	return all
}

// conditions returns every if, by its place.
func (w *workflow) conditions() map[string]string {
	all := map[string]string{}
	for name, job := range w.Jobs {
		all[name] = job.If
	}
	for at, s := range w.steps() {
		all[at] = s.If
	}
	return all
}

// envs returns the variables of the workflow, its jobs and steps, by place.
func (w *workflow) envs() map[string]variables {
	all := map[string]variables{"workflow": w.Env}
	for name, job := range w.Jobs {
		all[name] = job.Env
	}
	for at, s := range w.steps() {
		all[at] = s.Env
	}
	return all
}

// on reports whether an event starts the workflow.
func (w *workflow) on(event string) bool {
	return w.On.Value == event || slices.ContainsFunc(w.On.Content, func(n *yaml.Node) bool { return n.Value == event })
}

// releases reports whether the workflow publishes: it runs for tags or releases, or something in it publishes.
func (w *workflow) releases() bool {
	return w.on("release") || regexp.MustCompile(`(?m)^\s*tags:`).MatchString(nodeText(&w.On)) ||
		slices.ContainsFunc([]string{"gh release create", "docker/login-action", "softprops/action-gh-release", "pypa/gh-action-pypi-publish"}, func(s string) bool { return strings.Contains(w.text, s) })
}

// uses is the action that a step uses, without its version.
func uses(s workflowStep) string { name, _, _ := strings.Cut(s.Uses, "@"); return name }

// secretsOf returns the secrets that a step is given, except for the token of the run.
func secretsOf(s workflowStep) (names []string) {
	for _, given := range []variables{s.Env, s.With} {
		for _, v := range given {
			for _, m := range secretRef.FindAllStringSubmatch(v, -1) {
				if m[1] != "GITHUB_TOKEN" {
					names = append(names, m[1])
				}
			}
		}
	}
	return names
}

// images returns the images of a job's container or services.
func images(n *yaml.Node) (found []string) {
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return []string{n.Value}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch v := n.Content[i+1]; {
		case n.Content[i].Value == "image":
			found = append(found, v.Value)
		case v.Kind == yaml.MappingNode:
			found = append(found, images(v)...)
		}
	}
	return found
}

// nodeText is a part of a document as YAML.
func nodeText(n *yaml.Node) string {
	if n.IsZero() {
		return ""
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return ""
	}
	return string(text)
}
